package rpc

import (
	"bytes"
	"encoding/binary"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// Limits on one request, besides its bytes.
const (
	maxTensors    = 256 // inputs, outputs asked for
	maxDimensions = 127 // of an input, before it is compared with a model
)

// request is what a client asks for, decoded. Its data may lie in the message.
// Inputs stand in the order of the message, outputs in that of the answer; without
// any, all are wanted. They are sent raw or as typed contents. The client of a
// stream may want the last answer marked as final.
type request struct {
	model, version, id string
	timeout            time.Duration
	priority           int
	inputs             []query.Tensor
	outputs            []string
	raw, final         bool
}

// decode reads a message.
func decode(m *inference.ModelInferRequest) (*request, *query.Error) {
	if inputs, outputs, raw := len(m.Inputs), len(m.Outputs), len(m.RawInputContents); max(inputs, outputs, raw) > maxTensors {
		return nil, query.Invalid("the request has %d inputs, %d outputs and %d raw contents; the limit is %d of each", inputs, outputs, raw, maxTensors)
	}
	if n := len(m.Parameters); n > query.MaxParameters {
		return nil, query.Invalid("the request has %d parameters, the limit is %d", n, query.MaxParameters)
	}
	r := &request{model: m.ModelName, version: m.ModelVersion, id: m.Id, raw: len(m.RawInputContents) > 0}
	for key, p := range m.Parameters {
		if err := r.parameter(key, p); err != nil {
			return nil, err
		}
	}
	if n := len(m.RawInputContents); n > 0 && n != len(m.Inputs) {
		return nil, query.Invalid("there are %d inputs and %d raw_input_contents: raw bytes are for all inputs or for none", len(m.Inputs), n)
	}
	r.inputs = make([]query.Tensor, len(m.Inputs))
	for i, in := range m.Inputs {
		if err := decodeInput(&r.inputs[i], in); err != nil {
			return nil, err
		}
		if err := decodeData(&r.inputs[i], in.Contents, m.RawInputContents, i); err != nil {
			return nil, err
		}
	}
	for _, out := range m.Outputs {
		if err := checkParameters("an output", out.Parameters); err != nil {
			return nil, err
		}
		r.outputs = append(r.outputs, out.Name)
	}
	return r, nil
}

// parameter takes in a parameter of the request. Those that overlapd does not
// know are ignored.
func (r *request) parameter(key string, p *inference.InferParameter) *query.Error {
	switch key {
	case "timeout": // microseconds
		usec, err := number(key, p, query.MaxTimeoutUsec)
		r.timeout = time.Duration(usec) * time.Microsecond
		return err
	case "priority":
		v, err := number(key, p, query.MaxPriority)
		r.priority = int(v)
		return err
	case "binary_data_output":
		return flag(key, p, &r.raw)
	case parameterFinal:
		return flag(key, p, &r.final)
	}
	return query.CheckParameter(key)
}

// parameterFinal is what Triton's clients of streams send.
const parameterFinal = "triton_enable_empty_final_response"

// number reads a parameter that is an integer in [0, most].
func number(key string, p *inference.InferParameter, most int64) (int64, *query.Error) {
	switch v := p.GetParameterChoice().(type) {
	case *inference.InferParameter_Int64Param:
		if v.Int64Param >= 0 && v.Int64Param <= most {
			return v.Int64Param, nil
		}
		return 0, query.Invalid("the parameter %q must be in [0, %d], not %d", key, most, v.Int64Param)
	case *inference.InferParameter_Uint64Param:
		if v.Uint64Param <= uint64(most) {
			return int64(v.Uint64Param), nil
		}
		return 0, query.Invalid("the parameter %q must be in [0, %d], not %d", key, most, v.Uint64Param)
	}
	return 0, query.Invalid("the parameter %q must be an integer: set int64_param", key)
}

func flag(key string, p *inference.InferParameter, v *bool) *query.Error {
	b, ok := p.GetParameterChoice().(*inference.InferParameter_BoolParam)
	if !ok {
		return query.Invalid("the parameter %q must be true or false: set bool_param", key)
	}
	*v = b.BoolParam
	return nil
}

// checkParameters refuses the parameters of a tensor that ask for what overlapd
// does not offer, or that are too many.
func checkParameters(tensor string, parameters map[string]*inference.InferParameter) *query.Error {
	if len(parameters) > query.MaxParameters {
		return query.Invalid("%s has %d parameters, the limit is %d", tensor, len(parameters), query.MaxParameters)
	}
	for key := range parameters {
		if err := query.CheckTensorParameter(key); err != nil {
			return err
		}
	}
	return nil
}

// decodeInput reads the name, type and shape of an input.
func decodeInput(t *query.Tensor, in *inference.ModelInferRequest_InferInputTensor) *query.Error {
	if err := checkParameters("an input", in.GetParameters()); err != nil {
		return err
	}
	if len(in.GetShape()) > maxDimensions {
		return query.Invalid("the shape of an input has too many dimensions")
	}
	typ, ok := models.ProtocolType(in.GetDatatype())
	if !ok {
		return query.Invalid("input %q: unknown datatype %q", query.Cut(in.GetName()), query.Cut(in.GetDatatype()))
	}
	t.Name, t.Type, t.Shape = in.GetName(), typ, in.GetShape()
	return nil
}

// decodeData sets the data of input n, from the raw contents if there are any.
func decodeData(t *query.Tensor, c *inference.InferTensorContents, raw [][]byte, n int) (err *query.Error) {
	if len(raw) > 0 {
		if c != nil {
			return query.Invalid("input %q has contents, and the request has raw_input_contents: send one of them", query.Cut(t.Name))
		}
		t.Data = raw[n]
		return nil
	}
	t.Data, err = packContents(t, c)
	return err
}

// fill fills in a call, and holds it against the model.
func (r *request) fill(c *query.Call) *query.Error {
	if err := c.SetID([]byte(r.id)); err != nil {
		return err
	}
	c.Timeout, c.Priority = r.timeout, r.priority
	for i := range r.inputs {
		t := &r.inputs[i]
		port := query.Find(c.Signature.Inputs, []byte(t.Name))
		if port < 0 {
			return query.Invalid("the model has no input %q", query.Cut(t.Name))
		}
		in := query.Input{Tensor: query.Tensor{Type: t.Type, Data: t.Data}}
		for _, d := range t.Shape {
			if err := in.AddDimension(d); err != nil {
				return err
			}
		}
		if err := c.Give(port, &in); err != nil {
			return err
		}
	}
	for _, name := range r.outputs {
		port := query.Find(c.Signature.Outputs, []byte(name))
		if port < 0 {
			return query.Invalid("the model has no output %q", query.Cut(name))
		}
		if err := c.Ask(query.Output{Port: port, Binary: true}); err != nil {
			return err
		}
	}
	c.AskAll(true)
	return c.Check()
}

// packContents returns the typed contents of an input as bytes.
func packContents(t *query.Tensor, c *inference.InferTensorContents) ([]byte, *query.Error) {
	if query.BinaryOnly(t.Type) {
		return nil, query.Invalid("input %q is %s, which has no typed contents: send raw_input_contents", query.Cut(t.Name), t.Type.Protocol())
	}
	data, elements, ok := pack(t.Type, c)
	switch {
	case !ok:
		return nil, query.Invalid("input %q: a value is out of the range of %s", query.Cut(t.Name), t.Type.Protocol())
	case elements != filled(c):
		return nil, query.Invalid("input %q is %s, and its contents have values of another type", query.Cut(t.Name), t.Type.Protocol())
	}
	return data, nil
}

// filled returns how many elements contents have, whatever their type.
func filled(c *inference.InferTensorContents) int {
	return len(c.GetBoolContents()) + len(c.GetIntContents()) + len(c.GetInt64Contents()) + len(c.GetUintContents()) +
		len(c.GetUint64Contents()) + len(c.GetFp32Contents()) + len(c.GetFp64Contents()) + len(c.GetBytesContents())
}

// pack returns the contents of a type as bytes, and how many elements they
// are. It reports false if one is out of range.
func pack(t models.DataType, c *inference.InferTensorContents) (data []byte, elements int, ok bool) {
	switch t {
	case models.Bool:
		return packFixed(c.GetBoolContents())
	case models.Int8:
		return packNarrow[int8](c.GetIntContents())
	case models.Int16:
		return packNarrow[int16](c.GetIntContents())
	case models.Int32:
		return packFixed(c.GetIntContents())
	case models.Int64:
		return packFixed(c.GetInt64Contents())
	case models.Uint8:
		return packNarrow[uint8](c.GetUintContents())
	case models.Uint16:
		return packNarrow[uint16](c.GetUintContents())
	case models.Uint32:
		return packFixed(c.GetUintContents())
	case models.Uint64:
		return packFixed(c.GetUint64Contents())
	case models.Float32:
		return packFixed(c.GetFp32Contents())
	case models.Float64:
		return packFixed(c.GetFp64Contents())
	case models.String:
		v := c.GetBytesContents()
		return packStrings(v), len(v), true
	}
	return nil, 0, false
}

func packFixed[E any](values []E) ([]byte, int, bool) {
	b, err := binary.Append(make([]byte, 0, binary.Size(values)), binary.LittleEndian, values)
	return b, len(values), err == nil
}

// packNarrow packs values as the narrower type that they stand for.
func packNarrow[N int8 | int16 | uint8 | uint16, W int32 | uint32](values []W) ([]byte, int, bool) {
	narrow := make([]N, len(values))
	for i, v := range values {
		if narrow[i] = N(v); W(narrow[i]) != v {
			return nil, 0, false
		}
	}
	return packFixed(narrow)
}

func packStrings(values [][]byte) []byte {
	size := 0
	for _, v := range values {
		size += query.StringHead + len(v)
	}
	b := make([]byte, 0, size)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// unpack returns the bytes of an output as typed contents, which hold copies. It
// reports false for a type without them and for bytes that are not what the type
// says.
func unpack(t models.DataType, data []byte) (*inference.InferTensorContents, bool) {
	c := &inference.InferTensorContents{}
	if t == models.String {
		return c, unpackStrings(c, data)
	}
	if query.BinaryOnly(t) || t.Bytes() <= 0 || len(data)%t.Bytes() != 0 {
		return nil, false
	}
	switch t {
	case models.Bool:
		c.BoolContents = unpackFixed[bool](data)
	case models.Int8:
		c.IntContents = widen[int32](unpackFixed[int8](data))
	case models.Int16:
		c.IntContents = widen[int32](unpackFixed[int16](data))
	case models.Int32:
		c.IntContents = unpackFixed[int32](data)
	case models.Int64:
		c.Int64Contents = unpackFixed[int64](data)
	case models.Uint8:
		c.UintContents = widen[uint32](data)
	case models.Uint16:
		c.UintContents = widen[uint32](unpackFixed[uint16](data))
	case models.Uint32:
		c.UintContents = unpackFixed[uint32](data)
	case models.Uint64:
		c.Uint64Contents = unpackFixed[uint64](data)
	case models.Float32:
		c.Fp32Contents = unpackFixed[float32](data)
	case models.Float64:
		c.Fp64Contents = unpackFixed[float64](data)
	default:
		return nil, false
	}
	return c, true
}

// unpackFixed returns the elements that data holds, which are whole.
func unpackFixed[E any](data []byte) []E {
	var e E
	values := make([]E, len(data)/binary.Size(e))
	_, _ = binary.Decode(data, binary.LittleEndian, values)
	return values
}

func widen[W int32 | uint32, N int8 | int16 | uint8 | uint16](narrow []N) []W {
	values := make([]W, len(narrow))
	for i, v := range narrow {
		values[i] = W(v)
	}
	return values
}

func unpackStrings(c *inference.InferTensorContents, data []byte) bool {
	for ok := true; len(data) > 0; {
		var element []byte
		if element, data, ok = query.NextString(data); !ok {
			return false
		}
		c.BytesContents = append(c.BytesContents, bytes.Clone(element))
	}
	return true
}

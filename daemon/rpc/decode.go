package rpc

import (
	"encoding/binary"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// Limits on a request besides its size. They keep the work of checking a message linear and
// small.
const (
	maxTensors    = 256 // inputs, and requested outputs
	maxDimensions = 127 // of an input, before the shape is compared with the model's
)

// fill sets the inputs, outputs and parameters of a call from the request and checks them
// against the model. The call's data may point into the message.
func (x *exchange) fill(c *query.Call) *query.Error {
	m := &x.request
	inputs, outputs, raw := len(m.Inputs), len(m.Outputs), len(m.RawInputContents)
	switch {
	case max(inputs, outputs, raw) > maxTensors:
		return query.Invalid("the request has %d inputs, %d outputs and %d raw contents; the limit is %d of each", inputs, outputs, raw, maxTensors)
	case len(m.Parameters) > query.MaxParameters:
		return query.Invalid("the request has %d parameters, the limit is %d", len(m.Parameters), query.MaxParameters)
	}
	for _, in := range m.Inputs {
		if err := checkParameters("an input", in.GetParameters()); err != nil {
			return err
		}
	}
	// An input in shared memory would have no raw contents, but those are rejected above.
	if raw > 0 && raw != inputs {
		return query.Invalid("there are %d inputs and %d raw_input_contents: send raw bytes for all inputs or for none", inputs, raw)
	}
	if err := c.SetID([]byte(m.Id)); err != nil {
		return err
	}
	for key, p := range m.Parameters {
		if err := x.parameter(c, key, p); err != nil {
			return err
		}
	}
	for i, in := range m.Inputs {
		if err := x.input(c, i, in); err != nil {
			return err
		}
	}
	for _, out := range m.Outputs {
		if err := checkParameters("an output", out.Parameters); err != nil {
			return err
		}
		port := query.Find(c.Signature.Outputs, []byte(out.Name))
		if port < 0 {
			return query.Invalid("the model has no output %q", query.Cut(out.Name))
		}
		if err := c.Ask(query.Output{Port: port, Binary: true}); err != nil {
			return err
		}
	}
	c.AskAll(true)
	return c.Check()
}

// parameter applies a request parameter. Unknown ones are ignored.
func (x *exchange) parameter(c *query.Call, key string, p *inference.InferParameter) *query.Error {
	switch key {
	case "timeout": // microseconds
		usec, err := number(key, p, query.MaxTimeoutUsec)
		c.Timeout = time.Duration(usec) * time.Microsecond
		return err
	case "priority":
		v, err := number(key, p, query.MaxPriority)
		c.Priority = int(v)
		return err
	case query.ParameterVariant:
		v, ok := p.GetParameterChoice().(*inference.InferParameter_StringParam)
		if !ok {
			return query.Invalid("the parameter %q must be the name of a variant: set string_param", key)
		}
		return c.AskVariant([]byte(v.StringParam))
	case query.ParameterLeastAccuracy:
		switch v := p.GetParameterChoice().(type) {
		case *inference.InferParameter_DoubleParam:
			return c.AskAccuracy(v.DoubleParam)
		case *inference.InferParameter_Int64Param:
			return c.AskAccuracy(float64(v.Int64Param))
		case *inference.InferParameter_Uint64Param:
			return c.AskAccuracy(float64(v.Uint64Param))
		}
		return query.Invalid("the parameter %q must be a number: set double_param", key)
	case parameterFinal:
		return flag(key, p, &x.final)
	}
	return query.CheckParameter(key)
}

// parameterFinal is sent by Triton's streaming clients that want the last response marked.
const parameterFinal = "triton_enable_empty_final_response"

// number reads an integer parameter in [0, most].
func number(key string, p *inference.InferParameter, most int64) (int64, *query.Error) {
	var n uint64
	var sent any
	switch v := p.GetParameterChoice().(type) {
	case *inference.InferParameter_Int64Param:
		n, sent = uint64(v.Int64Param), v.Int64Param // a negative number becomes too large
	case *inference.InferParameter_Uint64Param:
		n, sent = v.Uint64Param, v.Uint64Param
	default:
		return 0, query.Invalid("the parameter %q must be an integer: set int64_param", key)
	}
	if n > uint64(most) {
		return 0, query.Invalid("the parameter %q must be in [0, %d], not %d", key, most, sent)
	}
	return int64(n), nil
}

// flag reads a Boolean parameter.
func flag(key string, p *inference.InferParameter, v *bool) *query.Error {
	b, ok := p.GetParameterChoice().(*inference.InferParameter_BoolParam)
	if !ok {
		return query.Invalid("the parameter %q must be true or false: set bool_param", key)
	}
	*v = b.BoolParam
	return nil
}

// checkParameters rejects parameters of a tensor that ask for unsupported features, and too
// many of them. tensor names it in errors.
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

// input sets input n of the request. Its data is in the raw contents if the request has
// any.
func (x *exchange) input(c *query.Call, n int, in *inference.ModelInferRequest_InferInputTensor) (err *query.Error) {
	name, raw := query.Cut(in.GetName()), x.request.RawInputContents
	typ, known := models.ProtocolType(in.GetDatatype())
	port := query.Find(c.Signature.Inputs, []byte(in.GetName()))
	switch {
	case len(in.GetShape()) > maxDimensions:
		return query.Invalid("the shape of an input has too many dimensions")
	case !known:
		return query.Invalid("input %q: unknown datatype %q", name, query.Cut(in.GetDatatype()))
	case len(raw) > 0 && in.Contents != nil:
		return query.Invalid("input %q has contents, but the request has raw_input_contents: send one of them", name)
	case port < 0:
		return query.Invalid("the model has no input %q", name)
	}
	t := query.Input{Tensor: models.Tensor{Type: typ}}
	if len(raw) > 0 {
		t.Data = raw[n]
	} else if t.Data, err = packContents(name, typ, in.Contents); err != nil {
		return err
	}
	for _, d := range in.GetShape() {
		if err := t.AddDimension(d); err != nil {
			return err
		}
	}
	return c.Give(port, &t)
}

// contents are the typed contents of a tensor: one list for each protobuf type.
type contents = inference.InferTensorContents

// pack converts the typed contents of an input to bytes and returns the number of elements.
// ok is false if one is out of range.
type pack func(*contents) (data []byte, elements int, ok bool)

// packs has the function for each type that has typed contents. FP16 and BF16 have none.
var packs = map[models.DataType]pack{
	models.Bool:    func(c *contents) ([]byte, int, bool) { return packFixed(c.BoolContents) },
	models.Int8:    func(c *contents) ([]byte, int, bool) { return packNarrow[int8](c.IntContents) },
	models.Int16:   func(c *contents) ([]byte, int, bool) { return packNarrow[int16](c.IntContents) },
	models.Int32:   func(c *contents) ([]byte, int, bool) { return packFixed(c.IntContents) },
	models.Int64:   func(c *contents) ([]byte, int, bool) { return packFixed(c.Int64Contents) },
	models.Uint8:   func(c *contents) ([]byte, int, bool) { return packNarrow[uint8](c.UintContents) },
	models.Uint16:  func(c *contents) ([]byte, int, bool) { return packNarrow[uint16](c.UintContents) },
	models.Uint32:  func(c *contents) ([]byte, int, bool) { return packFixed(c.UintContents) },
	models.Uint64:  func(c *contents) ([]byte, int, bool) { return packFixed(c.Uint64Contents) },
	models.Float32: func(c *contents) ([]byte, int, bool) { return packFixed(c.Fp32Contents) },
	models.Float64: func(c *contents) ([]byte, int, bool) { return packFixed(c.Fp64Contents) },
	models.String:  packStrings,
}

// packNarrow packs elements whose type is narrower than the protobuf type that carries
// them.
func packNarrow[N int8 | int16 | uint8 | uint16, W int32 | uint32](wide []W) ([]byte, int, bool) {
	narrow := make([]N, len(wide))
	for i, v := range wide {
		if narrow[i] = N(v); W(narrow[i]) != v {
			return nil, 0, false
		}
	}
	return packFixed(narrow)
}

// packFixed packs elements of a fixed size, little endian.
func packFixed[E any](values []E) ([]byte, int, bool) {
	b, err := binary.Append(make([]byte, 0, binary.Size(values)), binary.LittleEndian, values)
	return b, len(values), err == nil
}

// packStrings packs strings, each with a length before it.
func packStrings(c *contents) ([]byte, int, bool) {
	size := 0
	for _, v := range c.BytesContents {
		size += query.StringHead + len(v)
	}
	b := make([]byte, 0, size)
	for _, v := range c.BytesContents {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(v))), v...)
	}
	return b, len(c.BytesContents), true
}

// packContents converts the typed contents of an input to bytes. It rejects contents in the
// field of another type.
func packContents(input string, t models.DataType, c *contents) ([]byte, *query.Error) {
	f, ok := packs[t]
	if !ok {
		return nil, query.Invalid("input %q is %s, which has no typed contents: send raw_input_contents", input, t.Protocol())
	}
	if c == nil {
		c = new(contents)
	}
	data, elements, ok := f(c)
	switch {
	case !ok:
		return nil, query.Invalid("input %q: a value is out of the range of %s", input, t.Protocol())
	case elements != len(c.BoolContents)+len(c.IntContents)+len(c.Int64Contents)+len(c.UintContents)+
		len(c.Uint64Contents)+len(c.Fp32Contents)+len(c.Fp64Contents)+len(c.BytesContents):
		return nil, query.Invalid("input %q is %s, but its contents are values of another type", input, t.Protocol())
	}
	return data, nil
}

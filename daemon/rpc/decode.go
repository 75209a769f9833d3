package rpc

import (
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
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
		if err := checkParameters(out.Parameters); err != nil {
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
// does not offer.
func checkParameters(parameters map[string]*inference.InferParameter) *query.Error {
	for key := range parameters {
		if err := query.CheckTensorParameter(key); err != nil {
			return err
		}
	}
	return nil
}

// decodeInput reads the name, type and shape of an input.
func decodeInput(t *query.Tensor, in *inference.ModelInferRequest_InferInputTensor) *query.Error {
	if err := checkParameters(in.GetParameters()); err != nil {
		return err
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

package rpc

import (
	"math"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

const (
	maxPriority    = math.MaxInt32
	maxTimeoutUsec = math.MaxInt64 / int64(time.Microsecond)

	// maxEcho bounds how much of a text that is not known goes into an error.
	maxEcho = 128
)

// Names of parameters that Triton's clients send and that mean something
// here.
const (
	parameterTimeout  = "timeout" // microseconds
	parameterPriority = "priority"
	parameterBinary   = "binary_data_output"
	parameterFinal    = "triton_enable_empty_final_response"
)

// form says how the outputs of an answer are written.
type form struct {
	raw   bool
	final bool // the client of a stream wants to be told which answer is the last
}

// decode turns a request into a query. The query's data may lie in the
// request.
func decode(r *inference.ModelInferRequest) (*Query, form, *Fault) {
	q := &Query{Model: r.ModelName, Version: r.ModelVersion, ID: r.Id}
	f := form{raw: len(r.RawInputContents) > 0}
	for key, p := range r.Parameters {
		if fault := q.parameter(key, p, &f); fault != nil {
			return nil, f, fault
		}
	}
	if n := len(r.RawInputContents); n > 0 && n != len(r.Inputs) {
		return nil, f, invalid("there are %d inputs and %d raw_input_contents: raw bytes are for all inputs or for none", len(r.Inputs), n)
	}
	q.Inputs = make([]Tensor, len(r.Inputs))
	for i, in := range r.Inputs {
		if fault := q.Inputs[i].decode(in); fault != nil {
			return nil, f, fault
		}
		if fault := q.Inputs[i].fill(in.Contents, r.RawInputContents, i); fault != nil {
			return nil, f, fault
		}
	}
	for _, out := range r.Outputs {
		if fault := unsupported(out.Parameters); fault != nil {
			return nil, f, fault
		}
		q.Outputs = append(q.Outputs, out.Name)
	}
	return q, f, nil
}

// parameter takes in a parameter of the request. Those that overlapd does not
// know are ignored.
func (q *Query) parameter(key string, p *inference.InferParameter, f *form) *Fault {
	switch key {
	case parameterTimeout:
		usec, fault := number(key, p, maxTimeoutUsec)
		q.Timeout = time.Duration(usec) * time.Microsecond
		return fault
	case parameterPriority:
		v, fault := number(key, p, maxPriority)
		q.Priority = int(v)
		return fault
	case parameterBinary:
		return flag(key, p, &f.raw)
	case parameterFinal:
		return flag(key, p, &f.final)
	}
	if strings.HasPrefix(key, "sequence_") || strings.HasPrefix(key, "triton_") || key == "headers" {
		return invalid("the parameter %q is reserved, and overlapd does not offer what it asks for", cut(key))
	}
	return nil
}

// number reads a parameter that is an integer in [0, most].
func number(key string, p *inference.InferParameter, most int64) (int64, *Fault) {
	switch v := p.GetParameterChoice().(type) {
	case *inference.InferParameter_Int64Param:
		if v.Int64Param >= 0 && v.Int64Param <= most {
			return v.Int64Param, nil
		}
		return 0, invalid("the parameter %q must be in [0, %d], not %d", key, most, v.Int64Param)
	case *inference.InferParameter_Uint64Param:
		if v.Uint64Param <= uint64(most) {
			return int64(v.Uint64Param), nil
		}
		return 0, invalid("the parameter %q must be in [0, %d], not %d", key, most, v.Uint64Param)
	}
	return 0, invalid("the parameter %q must be an integer: set int64_param", key)
}

func flag(key string, p *inference.InferParameter, v *bool) *Fault {
	b, ok := p.GetParameterChoice().(*inference.InferParameter_BoolParam)
	if !ok {
		return invalid("the parameter %q must be true or false: set bool_param", key)
	}
	*v = b.BoolParam
	return nil
}

// unsupported refuses the parameters of a tensor that ask for what overlapd
// does not offer.
func unsupported(parameters map[string]*inference.InferParameter) *Fault {
	for key := range parameters {
		if key == "classification" || strings.HasPrefix(key, "shared_memory_") {
			return invalid("the parameter %q asks for what overlapd does not offer", cut(key))
		}
	}
	return nil
}

// decode reads what an input says of itself.
func (t *Tensor) decode(in *inference.ModelInferRequest_InferInputTensor) *Fault {
	if fault := unsupported(in.GetParameters()); fault != nil {
		return fault
	}
	typ, ok := models.ProtocolType(in.GetDatatype())
	if !ok {
		return invalid("input %q: unknown datatype %q", cut(in.GetName()), cut(in.GetDatatype()))
	}
	t.Name, t.Type, t.Shape = in.GetName(), typ, in.GetShape()
	return nil
}

// fill sets the data of input n, from the raw contents if there are any.
func (t *Tensor) fill(c *inference.InferTensorContents, raw [][]byte, n int) (fault *Fault) {
	if len(raw) > 0 {
		if c != nil {
			return invalid("input %q has contents, and the request has raw_input_contents: send one of them", cut(t.Name))
		}
		t.Data = raw[n]
		return nil
	}
	t.Data, fault = packContents(t, c)
	return fault
}

func cut(s string) string { return s[:min(len(s), maxEcho)] }

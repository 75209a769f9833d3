package daemon

import (
	"bytes"
	"github.com/overlapd/overlapd/daemon/query"
	"time"
)

// decoder reads the JSON of a request into r. It keeps the state of the
// objects that it is inside of itself, so that reading takes no memory.
type decoder struct {
	scanner
	r     *query.Request
	sig   *query.Signature
	order []int     // inputs in the order of the request: that of their binary data
	seen  int       // members of the object that is being read
	in    inputHead // input that is being read
	out   outputHead
	left  int // parameters that may still come
}

// Members of the request that may come only once.
const (
	hasID = 1 << iota
	hasParameters
	hasInputs
	hasOutputs
	hasName
	hasShape
	hasType
	hasData
	hasTimeout
	hasPriority
	hasBinary
	hasSize
)

// once notes that a member came, and refuses it the second time.
func (d *decoder) once(member int, key []byte) *query.Error {
	if d.seen&member != 0 {
		return query.Invalid("%q is given twice (byte %d)", key, d.i)
	}
	d.seen |= member
	return nil
}

// members calls member for each member of an object.
func (d *decoder) members(what string, member func(d *decoder, key []byte) *query.Error) *query.Error {
	if !d.take('{') {
		return query.Invalid("%s must be an object (byte %d)", what, d.i)
	}
	outer := d.seen
	d.seen = 0
	for first := true; ; first = false {
		more, err := d.more(first, '}')
		if err != nil {
			return err
		}
		if !more {
			break
		}
		key, err := d.key()
		if err != nil {
			return err
		}
		if err := member(d, key); err != nil {
			return err
		}
	}
	d.seen = outer
	return nil
}

// elements calls element for each element of an array.
func (d *decoder) elements(what string, element func(d *decoder) *query.Error) *query.Error {
	if !d.take('[') {
		return query.Invalid("%s must be an array (byte %d)", what, d.i)
	}
	for first := true; ; first = false {
		more, err := d.more(first, ']')
		if !more || err != nil {
			return err
		}
		if err := element(d); err != nil {
			return err
		}
	}
}

// decode reads the head of a request. The first headBytes of the body are
// JSON, the rest is binary data.
func (d *decoder) decode(r *query.Request, sig *query.Signature, body []byte, headBytes int) *query.Error {
	r.Reset(sig)
	*d = decoder{scanner: scanner{b: body[:headBytes]}, r: r, sig: sig, order: d.order[:0]}
	if err := d.request(); err != nil {
		return err
	}
	if err := d.split(body[headBytes:]); err != nil {
		return err
	}
	return r.Check(sig)
}

// split hands each binary input its part of what follows the JSON.
func (d *decoder) split(rest []byte) *query.Error {
	for _, n := range d.order {
		in := &d.r.Inputs[n]
		if in.Text != nil {
			continue
		}
		if in.Bytes > int64(len(rest)) {
			return query.Invalid("input %q: binary_data_size %d goes beyond the end of the body", d.sig.Inputs[n].Name, in.Bytes)
		}
		in.Data, rest = rest[:in.Bytes:in.Bytes], rest[in.Bytes:]
	}
	if len(rest) > 0 {
		return query.Invalid("%d bytes follow the last input of the body", len(rest))
	}
	return nil
}

// forget drops what points into the body.
func (d *decoder) forget() { *d = decoder{order: d.order} }

func (d *decoder) request() *query.Error {
	if err := d.members("the request", (*decoder).requestMember); err != nil {
		return err
	}
	if err := d.end(); err != nil {
		return err
	}
	for i := range d.r.Outputs {
		o := &d.r.Outputs[i]
		asked := d.r.Wanted[o.Port]
		o.Binary = asked == query.AskedBinary || asked == query.AskedEither && d.r.Binary
	}
	return nil
}

func (d *decoder) requestMember(key []byte) *query.Error {
	switch string(key) {
	case "id":
		if err := d.once(hasID, key); err != nil {
			return err
		}
		return d.id()
	case "parameters":
		if err := d.once(hasParameters, key); err != nil {
			return err
		}
		return d.parameters((*decoder).requestParameter)
	case "inputs":
		if err := d.once(hasInputs, key); err != nil {
			return err
		}
		return d.elements(`"inputs"`, (*decoder).input)
	case "outputs":
		if err := d.once(hasOutputs, key); err != nil {
			return err
		}
		return d.elements(`"outputs"`, (*decoder).output)
	}
	return d.skip(2)
}

// id takes the client's name for the query. It goes into logs, so it holds
// nothing that is not printed.
func (d *decoder) id() *query.Error {
	v, err := d.str(nil)
	if err != nil {
		return err
	}
	return d.r.SetID(v)
}

// parameters reads an object of parameters and counts them.
func (d *decoder) parameters(member func(d *decoder, key []byte) *query.Error) *query.Error {
	d.left = query.MaxParameters
	return d.members(`"parameters"`, member)
}

// parameter counts a parameter that overlapd does not know, and skips it.
func (d *decoder) parameter(depth int) *query.Error {
	if d.left--; d.left < 0 {
		return query.Invalid("more than %d parameters", query.MaxParameters)
	}
	return d.skip(depth)
}

func (d *decoder) requestParameter(key []byte) *query.Error {
	switch string(key) {
	case "timeout":
		if err := d.once(hasTimeout, key); err != nil {
			return err
		}
		usec, err := d.integer(`the parameter "timeout" (microseconds)`)
		if err != nil {
			return err
		}
		if usec < 0 || usec > query.MaxTimeoutUsec {
			return query.Invalid(`the parameter "timeout" must be in [0, %d] microseconds, not %d`, query.MaxTimeoutUsec, usec)
		}
		d.r.Timeout = time.Duration(usec) * time.Microsecond
		return nil
	case "priority":
		if err := d.once(hasPriority, key); err != nil {
			return err
		}
		p, err := d.integer(`the parameter "priority"`)
		if err != nil {
			return err
		}
		if p < 0 || p > query.MaxPriority {
			return query.Invalid(`the parameter "priority" must be in [0, %d], not %d`, query.MaxPriority, p)
		}
		d.r.Priority = int(p)
		return nil
	case "binary_data_output":
		if err := d.once(hasBinary, key); err != nil {
			return err
		}
		v, err := d.boolean(`the parameter "binary_data_output"`)
		d.r.Binary = v
		return err
	}
	if reserved(key) {
		return query.Invalid("the parameter %q is reserved, and overlapd does not offer what it asks for", query.Cut(key))
	}
	return d.parameter(3)
}

// reserved reports whether a request parameter has a meaning in Triton that
// would be lost if it were ignored.
func reserved(key []byte) bool {
	return bytes.HasPrefix(key, []byte("sequence_")) || bytes.HasPrefix(key, []byte("triton_")) ||
		string(key) == "headers"
}

// unsupported reports whether a tensor's parameter asks for what overlapd
// does not offer.
func unsupported(key []byte) bool {
	return string(key) == "classification" || bytes.HasPrefix(key, []byte("shared_memory_"))
}

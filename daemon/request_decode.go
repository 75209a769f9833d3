package daemon

import (
	"bytes"
	"time"
	"unicode"
	"unicode/utf8"
)

// decoder reads the JSON of a request into r. It keeps the state of the
// objects that it is inside of itself, so that reading takes no memory.
type decoder struct {
	scanner
	r    *request
	sig  *signature
	seen int       // members of the object that is being read
	in   inputHead // input that is being read
	out  outputHead
	left int // parameters that may still come
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
func (d *decoder) once(member int, key []byte) *Error {
	if d.seen&member != 0 {
		return invalid("%q is given twice (byte %d)", key, d.i)
	}
	d.seen |= member
	return nil
}

// members calls member for each member of an object.
func (d *decoder) members(what string, member func(d *decoder, key []byte) *Error) *Error {
	if !d.take('{') {
		return invalid("%s must be an object (byte %d)", what, d.i)
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
func (d *decoder) elements(what string, element func(d *decoder) *Error) *Error {
	if !d.take('[') {
		return invalid("%s must be an array (byte %d)", what, d.i)
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

func (d *decoder) request() *Error {
	if err := d.members("the request", (*decoder).requestMember); err != nil {
		return err
	}
	if err := d.end(); err != nil {
		return err
	}
	for i := range d.r.outputs {
		o := &d.r.outputs[i]
		asked := d.r.wanted[o.port]
		o.binary = asked == askedBinary || asked == askedEither && d.r.binary
	}
	return nil
}

func (d *decoder) requestMember(key []byte) *Error {
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
func (d *decoder) id() *Error {
	v, err := d.str(nil)
	if err != nil {
		return err
	}
	if err := checkID(v); err != nil {
		return err
	}
	d.r.id = append(d.r.id[:0], v...)
	return nil
}

func checkID(id []byte) *Error {
	if len(id) > maxIDBytes {
		return invalid(`"id" has %d bytes, the limit is %d`, len(id), maxIDBytes)
	}
	for len(id) > 0 {
		c, size := utf8.DecodeRune(id)
		if !unicode.IsPrint(c) {
			return invalid(`"id" holds a character that is not printable`)
		}
		id = id[size:]
	}
	return nil
}

// parameters reads an object of parameters and counts them.
func (d *decoder) parameters(member func(d *decoder, key []byte) *Error) *Error {
	d.left = maxParameters
	return d.members(`"parameters"`, member)
}

// parameter counts a parameter that overlapd does not know, and skips it.
func (d *decoder) parameter(depth int) *Error {
	if d.left--; d.left < 0 {
		return invalid("more than %d parameters", maxParameters)
	}
	return d.skip(depth)
}

func (d *decoder) requestParameter(key []byte) *Error {
	switch string(key) {
	case "timeout":
		if err := d.once(hasTimeout, key); err != nil {
			return err
		}
		usec, err := d.integer(`the parameter "timeout" (microseconds)`)
		if err != nil {
			return err
		}
		if usec < 0 || usec > maxTimeoutUsec {
			return invalid(`the parameter "timeout" must be in [0, %d] microseconds, not %d`, maxTimeoutUsec, usec)
		}
		d.r.timeout = time.Duration(usec) * time.Microsecond
		return nil
	case "priority":
		if err := d.once(hasPriority, key); err != nil {
			return err
		}
		p, err := d.integer(`the parameter "priority"`)
		if err != nil {
			return err
		}
		if p < 0 || p > maxPriority {
			return invalid(`the parameter "priority" must be in [0, %d], not %d`, maxPriority, p)
		}
		d.r.priority = int(p)
		return nil
	case "binary_data_output":
		if err := d.once(hasBinary, key); err != nil {
			return err
		}
		v, err := d.boolean(`the parameter "binary_data_output"`)
		d.r.binary = v
		return err
	}
	if reserved(key) {
		return invalid("the parameter %q is reserved, and overlapd does not offer what it asks for", cut(key))
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

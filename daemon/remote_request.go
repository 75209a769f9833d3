package daemon

import (
	"math"

	"github.com/overlapd/overlapd/daemon/rpc"
)

// adopt takes a query that came as bytes already, and checks it as if it had
// come as JSON.
func (r *request) adopt(sig *signature, q *rpc.Query) *Error {
	r.reset(sig)
	if err := checkID([]byte(q.ID)); err != nil {
		return err
	}
	r.id = append(r.id[:0], q.ID...)
	r.timeout, r.priority, r.binary = q.Timeout, q.Priority, true
	for i := range q.Inputs {
		if err := r.adoptInput(sig, &q.Inputs[i]); err != nil {
			return err
		}
	}
	for _, name := range q.Outputs {
		n := findPort(sig.outputs, []byte(name))
		switch {
		case n < 0:
			return invalid("the model has no output %q", cut([]byte(name)))
		case r.wanted[n] != askedNot:
			return invalid("output %q is asked for twice", name)
		}
		r.wanted[n] = askedBinary
		r.outputs = append(r.outputs, requestOutput{port: n, binary: true})
	}
	return r.check(sig)
}

func (r *request) adoptInput(sig *signature, t *rpc.Tensor) *Error {
	n := findPort(sig.inputs, []byte(t.Name))
	if n < 0 {
		return invalid("the model has no input %q", cut([]byte(t.Name)))
	}
	p, in := &sig.inputs[n], &r.inputs[n]
	switch {
	case in.given:
		return invalid("input %q is given twice", p.name)
	case t.Type != p.typ:
		return invalid("input %q is %s, the model wants %s", p.name, t.Type.Protocol(), p.typ.Protocol())
	}
	in.given, in.elements = true, 1
	for _, d := range t.Shape {
		if err := in.dimension(d); err != nil {
			return err
		}
	}
	in.binary, in.bytes = t.Data, int64(len(t.Data))
	return nil
}

// dimension takes in the next dimension of a shape and counts the elements.
func (in *requestInput) dimension(v int64) *Error {
	switch {
	case in.rank == maxRank:
		return invalid("a shape has more than %d dimensions", maxRank)
	case v < 1:
		return invalid("a dimension must be at least 1, not %d", v)
	case v > math.MaxInt64/in.elements:
		return invalid("the elements of a shape overflow")
	}
	in.shape[in.rank] = v
	in.rank++
	in.elements *= v
	return nil
}

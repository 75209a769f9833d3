package daemon

import (
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

// adopt takes a query that came as bytes already, and checks it as if it had
// come as JSON.
func adopt(r *query.Request, sig *query.Signature, q *rpc.Query) *query.Error {
	r.Reset(sig)
	if err := r.SetID([]byte(q.ID)); err != nil {
		return err
	}
	r.Timeout, r.Priority, r.Binary = q.Timeout, q.Priority, true
	for i := range q.Inputs {
		if err := adoptInput(r, sig, &q.Inputs[i]); err != nil {
			return err
		}
	}
	for _, name := range q.Outputs {
		n := query.Find(sig.Outputs, []byte(name))
		switch {
		case n < 0:
			return query.Invalid("the model has no output %q", query.Cut([]byte(name)))
		case r.Wanted[n] != query.AskedNot:
			return query.Invalid("output %q is asked for twice", name)
		}
		r.Wanted[n] = query.AskedBinary
		r.Outputs = append(r.Outputs, query.Output{Port: n, Binary: true})
	}
	return r.Check(sig)
}

func adoptInput(r *query.Request, sig *query.Signature, t *rpc.Tensor) *query.Error {
	n := query.Find(sig.Inputs, []byte(t.Name))
	if n < 0 {
		return query.Invalid("the model has no input %q", query.Cut([]byte(t.Name)))
	}
	p, in := &sig.Inputs[n], &r.Inputs[n]
	switch {
	case in.Given:
		return query.Invalid("input %q is given twice", p.Name)
	case t.Type != p.Type:
		return query.Invalid("input %q is %s, the model wants %s", p.Name, t.Type.Protocol(), p.Type.Protocol())
	}
	in.Given, in.Elements = true, 1
	for _, d := range t.Shape {
		if err := in.AddDimension(d); err != nil {
			return err
		}
	}
	in.Data, in.Bytes = t.Data, int64(len(t.Data))
	return nil
}

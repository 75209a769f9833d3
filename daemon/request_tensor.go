package daemon

import (
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// inputHead is an input as it is read: its name is needed to know which input
// it is, and may come last.
type inputHead struct {
	port int
	typ  models.DataType
	size int64 // binary_data_size, -1 without
	seen int   // members that it has
	query.Input
}

// outputHead is an output as it is read.
type outputHead struct {
	port  int
	asked query.Asked
}

// input reads one element of "inputs".
func (d *decoder) input() *query.Error {
	d.in = inputHead{size: -1}
	if err := d.members("an input", (*decoder).inputMember); err != nil {
		return err
	}
	return d.keep(&d.in)
}

func (d *decoder) inputMember(key []byte) (err *query.Error) {
	in := &d.in
	switch string(key) {
	case "name":
		if err := d.once(hasName, key); err != nil {
			return err
		}
		in.seen |= hasName
		in.port, err = d.portName("input", d.sig.Inputs)
		return err
	case "shape":
		if err := d.once(hasShape, key); err != nil {
			return err
		}
		in.seen |= hasShape
		return d.shape()
	case "datatype":
		if err := d.once(hasType, key); err != nil {
			return err
		}
		in.seen |= hasType
		return d.dataType(in)
	case "parameters":
		if err := d.once(hasParameters, key); err != nil {
			return err
		}
		return d.parameters((*decoder).inputParameter)
	case "data":
		if err := d.once(hasData, key); err != nil {
			return err
		}
		in.Text, err = d.extent(3)
		in.TextAt = d.i - len(in.Text)
		return err
	}
	return d.skip(4)
}

// portName reads the name of an input or output of the model.
func (d *decoder) portName(what string, ports []query.Port) (int, *query.Error) {
	name, err := d.str(nil)
	if err != nil {
		return 0, err
	}
	n := query.Find(ports, name)
	if n < 0 {
		return 0, query.Invalid("the model has no %s %q", what, query.Cut(name))
	}
	return n, nil
}

func (d *decoder) dataType(in *inputHead) *query.Error {
	name, err := d.str(nil)
	if err != nil {
		return err
	}
	t, ok := models.ProtocolType(string(query.Cut(name)))
	if !ok {
		return query.Invalid("unknown datatype %q", query.Cut(name))
	}
	in.typ = t
	return nil
}

func (d *decoder) inputParameter(key []byte) *query.Error {
	if string(key) == "binary_data_size" {
		if err := d.once(hasSize, key); err != nil {
			return err
		}
		size, err := d.integer(`the parameter "binary_data_size"`)
		if err == nil && size < 0 {
			return query.Invalid(`the parameter "binary_data_size" must not be negative`)
		}
		d.in.size = size
		return err
	}
	if unsupported(key) {
		return query.Invalid("the parameter %q asks for what overlapd does not offer", query.Cut(key))
	}
	return d.parameter(5)
}

// shape reads the dimensions of an input and counts its elements.
func (d *decoder) shape() *query.Error {
	d.in.Elements = 1
	return d.elements(`"shape"`, (*decoder).dimension)
}

func (d *decoder) dimension() *query.Error {
	in := &d.in
	if len(in.Shape()) == query.MaxRank {
		return query.Invalid("a shape has more than %d dimensions", query.MaxRank)
	}
	v, err := d.integer("a dimension")
	if err != nil {
		return err
	}
	return in.AddDimension(v)
}

// keep files an input under its port.
func (d *decoder) keep(in *inputHead) *query.Error {
	for _, m := range [...]struct {
		member int
		key    string
	}{{hasName, "name"}, {hasShape, "shape"}, {hasType, "datatype"}} {
		if in.seen&m.member == 0 {
			return query.Invalid("an input has no %q (byte %d)", m.key, d.i)
		}
	}
	p, slot := &d.sig.Inputs[in.port], &d.r.Inputs[in.port]
	switch {
	case slot.Given:
		return query.Invalid("input %q is given twice", p.Name)
	case in.typ != p.Type:
		return query.Invalid("input %q is %s, the model wants %s", p.Name, in.typ.Protocol(), p.Type.Protocol())
	case in.size >= 0 && in.Text != nil:
		return query.Invalid("input %q has both data and binary_data_size", p.Name)
	case in.size < 0 && in.Text == nil:
		return query.Invalid("input %q has neither data nor binary_data_size", p.Name)
	case in.Text != nil && query.Jsonless(p.Type):
		return query.Invalid("input %q is %s, which has no JSON form: send binary data", p.Name, p.Type.Protocol())
	}
	*slot = in.Input
	slot.Given = true
	slot.Bytes = max(in.size, 0)
	d.order = append(d.order, in.port)
	return nil
}

// output reads one element of "outputs".
func (d *decoder) output() *query.Error {
	if len(d.r.Outputs) == len(d.sig.Outputs) {
		return query.Invalid("more outputs are asked for than the model's %d", len(d.sig.Outputs))
	}
	d.out = outputHead{port: -1, asked: query.AskedEither}
	if err := d.members("an output", (*decoder).outputMember); err != nil {
		return err
	}
	port := d.out.port
	if port < 0 {
		return query.Invalid(`an output has no "name" (byte %d)`, d.i)
	}
	if d.r.Wanted[port] != query.AskedNot {
		return query.Invalid("output %q is asked for twice", d.sig.Outputs[port].Name)
	}
	d.r.Wanted[port] = d.out.asked
	d.r.Outputs = append(d.r.Outputs, query.Output{Port: port})
	return nil
}

func (d *decoder) outputMember(key []byte) (err *query.Error) {
	switch string(key) {
	case "name":
		if err := d.once(hasName, key); err != nil {
			return err
		}
		d.out.port, err = d.portName("output", d.sig.Outputs)
		return err
	case "parameters":
		if err := d.once(hasParameters, key); err != nil {
			return err
		}
		return d.parameters((*decoder).outputParameter)
	}
	return d.skip(4)
}

func (d *decoder) outputParameter(key []byte) *query.Error {
	if string(key) == "binary_data" {
		if err := d.once(hasBinary, key); err != nil {
			return err
		}
		v, err := d.boolean(`the parameter "binary_data"`)
		d.out.asked = query.AskedJSON
		if v {
			d.out.asked = query.AskedBinary
		}
		return err
	}
	if unsupported(key) {
		return query.Invalid("the parameter %q asks for what overlapd does not offer", query.Cut(key))
	}
	return d.parameter(5)
}

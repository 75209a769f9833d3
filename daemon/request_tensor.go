package daemon

import (
	"encoding/binary"

	"github.com/overlapd/overlapd/models"
)

// inputHead is an input as it is read: its name is needed to know which input
// it is, and may come last.
type inputHead struct {
	port int
	typ  models.DataType
	size int64 // binary_data_size, -1 without
	seen int   // members that it has
	requestInput
}

// outputHead is an output as it is read.
type outputHead struct {
	port  int
	asked asked
}

// input reads one element of "inputs".
func (d *decoder) input() *Error {
	d.in = inputHead{size: -1}
	if err := d.members("an input", (*decoder).inputMember); err != nil {
		return err
	}
	return d.keep(&d.in)
}

func (d *decoder) inputMember(key []byte) (err *Error) {
	in := &d.in
	switch string(key) {
	case "name":
		if err := d.once(hasName, key); err != nil {
			return err
		}
		in.seen |= hasName
		in.port, err = d.portName("input", d.sig.inputs)
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
		in.data, err = d.extent(3)
		in.dataAt = d.i - len(in.data)
		return err
	}
	return d.skip(4)
}

// portName reads the name of an input or output of the model.
func (d *decoder) portName(what string, ports []port) (int, *Error) {
	name, err := d.str(nil)
	if err != nil {
		return 0, err
	}
	n := findPort(ports, name)
	if n < 0 {
		return 0, invalid("the model has no %s %q", what, cut(name))
	}
	return n, nil
}

func (d *decoder) dataType(in *inputHead) *Error {
	name, err := d.str(nil)
	if err != nil {
		return err
	}
	t, ok := models.ProtocolType(string(cut(name)))
	if !ok {
		return invalid("unknown datatype %q", cut(name))
	}
	in.typ = t
	return nil
}

func (d *decoder) inputParameter(key []byte) *Error {
	if string(key) == "binary_data_size" {
		if err := d.once(hasSize, key); err != nil {
			return err
		}
		size, err := d.integer(`the parameter "binary_data_size"`)
		if err == nil && size < 0 {
			return invalid(`the parameter "binary_data_size" must not be negative`)
		}
		d.in.size = size
		return err
	}
	if unsupported(key) {
		return invalid("the parameter %q asks for what overlapd does not offer", cut(key))
	}
	return d.parameter(5)
}

// shape reads the dimensions of an input and counts its elements.
func (d *decoder) shape() *Error {
	d.in.elements = 1
	return d.elements(`"shape"`, (*decoder).dimension)
}

func (d *decoder) dimension() *Error {
	in := &d.in
	if in.rank == maxRank {
		return invalid("a shape has more than %d dimensions", maxRank)
	}
	v, err := d.integer("a dimension")
	if err != nil {
		return err
	}
	return in.dimension(v)
}

// keep files an input under its port.
func (d *decoder) keep(in *inputHead) *Error {
	for _, m := range [...]struct {
		member int
		key    string
	}{{hasName, "name"}, {hasShape, "shape"}, {hasType, "datatype"}} {
		if in.seen&m.member == 0 {
			return invalid("an input has no %q (byte %d)", m.key, d.i)
		}
	}
	p, slot := &d.sig.inputs[in.port], &d.r.inputs[in.port]
	switch {
	case slot.given:
		return invalid("input %q is given twice", p.name)
	case in.typ != p.typ:
		return invalid("input %q is %s, the model wants %s", p.name, in.typ.Protocol(), p.typ.Protocol())
	case in.size >= 0 && in.data != nil:
		return invalid("input %q has both data and binary_data_size", p.name)
	case in.size < 0 && in.data == nil:
		return invalid("input %q has neither data nor binary_data_size", p.name)
	case in.data != nil && jsonless(p.typ):
		return invalid("input %q is %s, which has no JSON form: send binary data", p.name, p.typ.Protocol())
	}
	*slot = in.requestInput
	slot.given = true
	slot.bytes = max(in.size, 0)
	d.r.order = append(d.r.order, in.port)
	return nil
}

// output reads one element of "outputs".
func (d *decoder) output() *Error {
	if len(d.r.outputs) == len(d.sig.outputs) {
		return invalid("more outputs are asked for than the model's %d", len(d.sig.outputs))
	}
	d.out = outputHead{port: -1, asked: askedEither}
	if err := d.members("an output", (*decoder).outputMember); err != nil {
		return err
	}
	port := d.out.port
	if port < 0 {
		return invalid(`an output has no "name" (byte %d)`, d.i)
	}
	if d.r.wanted[port] != askedNot {
		return invalid("output %q is asked for twice", d.sig.outputs[port].name)
	}
	d.r.wanted[port] = d.out.asked
	d.r.outputs = append(d.r.outputs, requestOutput{port: port})
	return nil
}

func (d *decoder) outputMember(key []byte) (err *Error) {
	switch string(key) {
	case "name":
		if err := d.once(hasName, key); err != nil {
			return err
		}
		d.out.port, err = d.portName("output", d.sig.outputs)
		return err
	case "parameters":
		if err := d.once(hasParameters, key); err != nil {
			return err
		}
		return d.parameters((*decoder).outputParameter)
	}
	return d.skip(4)
}

func (d *decoder) outputParameter(key []byte) *Error {
	if string(key) == "binary_data" {
		if err := d.once(hasBinary, key); err != nil {
			return err
		}
		v, err := d.boolean(`the parameter "binary_data"`)
		d.out.asked = askedJSON
		if v {
			d.out.asked = askedBinary
		}
		return err
	}
	if unsupported(key) {
		return invalid("the parameter %q asks for what overlapd does not offer", cut(key))
	}
	return d.parameter(5)
}

// jsonless reports whether the protocol carries a type only as binary data.
func jsonless(t models.DataType) bool { return t == models.Float16 || t == models.BFloat16 }

// stringHead is the length before each element of a tensor of type BYTES.
const stringHead = 4

// checkStrings follows the lengths in a binary tensor of type BYTES.
func checkStrings(p *port, in *requestInput) *Error {
	rest, n := in.binary, int64(0)
	for ; len(rest) > 0; n++ {
		if len(rest) < stringHead {
			return invalid("input %q: its data ends within the length of element %d", p.name, n)
		}
		size := uint64(binary.LittleEndian.Uint32(rest))
		if rest = rest[stringHead:]; size > uint64(len(rest)) {
			return invalid("input %q: element %d goes beyond the end of its data", p.name, n)
		}
		rest = rest[size:]
	}
	if n != in.elements {
		return invalid("input %q: its data has %d elements, its shape %d", p.name, n, in.elements)
	}
	return nil
}

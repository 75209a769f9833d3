package models

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// message iterates over the fields of one protobuf message. The first fault ends the iteration
// and is kept in err.
//
// Two things that protobuf allows are faults here: a known field with the wrong wire type, and
// a second occurrence of a singular message. Protobuf readers disagree about how to handle
// them, and a check must hold for every reader of the file, above all ONNX Runtime.
type message struct {
	p    *parser
	rest []byte
	// seen has a bit for each field that once has read.
	seen uint64

	num    protowire.Number
	typ    protowire.Type
	number uint64
	bytes  []byte
	err    error
}

// next reads the next field and returns false at the end of the message or after a fault.
func (m *message) next() bool {
	if m.err != nil || len(m.rest) == 0 {
		return false
	}
	num, typ, n := protowire.ConsumeTag(m.rest)
	if n < 0 {
		return m.fault("a field tag is invalid")
	}
	value := m.rest[n:]
	m.num, m.typ = num, typ
	switch typ {
	case protowire.VarintType:
		m.number, n = protowire.ConsumeVarint(value)
	case protowire.Fixed32Type:
		var v uint32
		v, n = protowire.ConsumeFixed32(value)
		m.number = uint64(v)
	case protowire.Fixed64Type:
		m.number, n = protowire.ConsumeFixed64(value)
	case protowire.BytesType:
		m.bytes, n = protowire.ConsumeBytes(value)
	default:
		return m.fault("field %d has a wire type that ONNX does not use", num)
	}
	if n < 0 {
		return m.fault("field %d is truncated", num)
	}
	m.rest = value[n:]
	return true
}

// fault records an error at the current position and returns false.
func (m *message) fault(format string, args ...any) bool {
	fault := &formatError{Err: ErrNotONNX, Offset: -1, Reason: fmt.Sprintf(format, args...)}
	if m.p != nil {
		// Slices of the file share its end, so capacities give offsets.
		fault.Offset = cap(m.p.data) - cap(m.rest)
	}
	m.err = fault
	return false
}

// is reports whether the field has the given wire type, and records a fault if not.
func (m *message) is(typ protowire.Type) bool {
	if m.err == nil && m.typ != typ {
		m.fault("field %d has the wrong wire type", m.num)
	}
	return m.err == nil
}

func (m *message) int() int64 {
	if !m.is(protowire.VarintType) {
		return 0
	}
	return int64(m.number)
}

func (m *message) body() []byte {
	if !m.is(protowire.BytesType) {
		return nil
	}
	return m.bytes
}

// name returns the field as an interned string.
func (m *message) name() string {
	if !m.is(protowire.BytesType) {
		return ""
	}
	var s string
	s, m.err = m.p.intern(m.bytes)
	return s
}

// each reads the field as a message that may be repeated.
func (m *message) each(read func(raw []byte) error) {
	if m.is(protowire.BytesType) {
		m.err = read(m.bytes)
	}
}

// once reads the field as a message that must not be repeated.
func (m *message) once(read func(raw []byte) error) {
	bit := uint64(1) << (uint(m.num) % 64)
	if m.seen&bit != 0 {
		m.fault("field %d is duplicate", m.num)
		return
	}
	m.seen |= bit
	m.each(read)
}

// ints calls add for each number of a repeated field, packed or not, until add returns false.
func (m *message) ints(add func(int64) bool) {
	if m.err != nil {
		return
	}
	if m.typ == protowire.VarintType {
		add(int64(m.number))
		return
	}
	for rest := m.body(); len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			m.fault("field %d contains an invalid number", m.num)
			return
		}
		if !add(int64(v)) {
			return
		}
		rest = rest[n:]
	}
}

// count returns how many numbers of a repeated field the current field holds, packed or not.
// single is the wire type of one unpacked number. size is the size of a packed number in
// bytes, or 0 for varints.
func (m *message) count(single protowire.Type, size int) int64 {
	switch {
	case m.err != nil:
		return 0
	case m.typ == single:
		return 1
	case size == 0:
		var n int64
		m.ints(func(int64) bool { n++; return true })
		return n
	}
	b := m.body()
	if len(b)%size != 0 {
		m.fault("field %d does not contain whole numbers", m.num)
	}
	return int64(len(b) / size)
}

package models

import (
	"math/bits"

	"google.golang.org/protobuf/encoding/protowire"
)

// payload counts what a TensorProto holds in each of the fields that may
// carry its data.
type payload struct {
	raw, floats, int32s, int64s, doubles, uint64s int64

	strings, characters int64
	hasRaw              bool
}

func (d *payload) add(m *message) {
	switch m.num {
	case 4:
		d.floats += m.count(protowire.Fixed32Type, 4)
	case 5:
		d.int32s += m.count(protowire.VarintType, 0)
	case 6:
		d.strings++
		d.characters += int64(len(m.body()))
	case 7:
		d.int64s += m.count(protowire.VarintType, 0)
	case 9:
		d.raw, d.hasRaw = int64(len(m.body())), true
	case 10:
		d.doubles += m.count(protowire.Fixed64Type, 8)
	case 11:
		d.uint64s += m.count(protowire.VarintType, 0)
	}
}

// check returns the bytes in memory of a tensor whose data are d.
func (d *payload) check(t DataType, elements int64) (int64, error) {
	if t == String {
		want := payload{strings: elements, characters: d.characters}
		return d.characters, d.equal(want, elements)
	}
	bytes := tensorBytes(t, elements)
	if d.hasRaw {
		return bytes, d.equal(payload{raw: bytes, hasRaw: true}, elements)
	}
	return bytes, d.equal(typedPayload(t, elements), elements)
}

func (d *payload) equal(want payload, elements int64) error {
	if *d == want {
		return nil
	}
	return refuse(ErrGraph, "its shape asks for %d elements, its data have another size or stand in another field; the file may be damaged", elements)
}

// typedPayload returns what a tensor without raw data holds.
func typedPayload(t DataType, n int64) payload {
	switch t {
	case Float32:
		return payload{floats: n}
	case Complex64:
		return payload{floats: 2 * n}
	case Int64:
		return payload{int64s: n}
	case Float64:
		return payload{doubles: n}
	case Complex128:
		return payload{doubles: 2 * n}
	case Uint32, Uint64:
		return payload{uint64s: n}
	}
	perNumber := max(1, 8/elementBits(t))
	return payload{int32s: (n + perNumber - 1) / perNumber}
}

// product returns how many elements a tensor has. It refuses what no machine
// can count even where a dimension of zero would hide it.
func product(dims []int64) (int64, error) {
	n, zero := uint64(1), false
	for _, d := range dims {
		if d == 0 {
			zero = true
			continue
		}
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > maxElements {
			return 0, refuse(ErrLimit, "its shape %v has more elements than fit into memory", dims)
		}
		n = lo
	}
	if zero {
		return 0, nil
	}
	return int64(n), nil
}

// maxElements keeps the size in bits of the widest element countable.
const maxElements = 1 << 55

func tensorBytes(t DataType, elements int64) int64 {
	return (elements*elementBits(t) + 7) / 8
}

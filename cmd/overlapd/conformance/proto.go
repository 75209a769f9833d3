package conformance

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/overlapd/overlapd/ort"
)

// readValue reads a file of test data: a TensorProto, a SequenceProto or an
// OptionalProto, as the type says.
func readValue(path string, t ort.TypeInfo) (value, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return value{}, err
	}
	v, err := parseValue(raw, t)
	if err != nil {
		return value{}, fmt.Errorf("%w: %s: %w", errInput, path, err)
	}
	return v, nil
}

func parseValue(raw []byte, t ort.TypeInfo) (value, error) {
	switch t.Kind {
	case ort.KindTensor:
		return parseTensor(raw)
	case ort.KindSequence:
		return parseSequence(raw)
	case ort.KindOptional:
		return parseOptional(raw)
	}
	return value{}, fmt.Errorf("a %s cannot be read", t.Kind)
}

// fields calls f for each field of a message.
func fields(raw []byte, f func(num protowire.Number, typ protowire.Type, field []byte) error) error {
	for len(raw) > 0 {
		num, typ, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		if n = protowire.ConsumeFieldValue(num, typ, raw); n < 0 {
			return protowire.ParseError(n)
		}
		field := raw[:n]
		if typ == protowire.BytesType {
			field, _ = protowire.ConsumeBytes(field)
		}
		if err := f(num, typ, field); err != nil {
			return err
		}
		raw = raw[n:]
	}
	return nil
}

func parseSequence(raw []byte) (value, error) {
	v := value{kind: ort.KindSequence}
	err := fields(raw, func(num protowire.Number, _ protowire.Type, field []byte) error {
		switch num {
		case 1:
			v.name = string(field)
		case 3:
			item, err := parseTensor(field)
			v.items = append(v.items, item)
			return err
		case 4, 5, 6, 7:
			return fmt.Errorf("a sequence of something else than tensors")
		}
		return nil
	})
	return v, err
}

func parseOptional(raw []byte) (v value, err error) {
	var name string
	err = fields(raw, func(num protowire.Number, _ protowire.Type, field []byte) (err error) {
		switch num {
		case 1:
			name = string(field)
		case 3:
			v, err = parseTensor(field)
		case 5:
			v, err = parseSequence(field)
		case 4, 6, 7:
			err = fmt.Errorf("an optional of something else than a tensor or a sequence")
		}
		return err
	})
	v.name = name
	return v, err
}

func parseTensor(raw []byte) (value, error) {
	v := value{kind: ort.KindTensor, dims: []int64{}}
	var numbers []uint64
	err := fields(raw, func(num protowire.Number, typ protowire.Type, field []byte) error {
		switch num {
		case 1:
			for _, d := range unpack(nil, typ, field, protowire.VarintType) {
				v.dims = append(v.dims, int64(d))
			}
		case 2:
			n, _ := protowire.ConsumeVarint(field)
			v.elem = ort.ElementType(n)
		case 4:
			numbers = unpack(numbers, typ, field, protowire.Fixed32Type)
		case 5, 7, 11:
			numbers = unpack(numbers, typ, field, protowire.VarintType)
		case 6:
			v.strings = append(v.strings, append([]byte(nil), field...))
		case 8:
			v.name = string(field)
		case 9:
			v.data = append([]byte(nil), field...)
		case 10:
			numbers = unpack(numbers, typ, field, protowire.Fixed64Type)
		case 13, 14:
			return fmt.Errorf("data outside the file")
		}
		return nil
	})
	if err == nil && v.data == nil {
		v.data, err = pack(v.elem, numbers)
	}
	return v, err
}

// unpack appends the numbers of a repeated field, packed or one by one.
func unpack(list []uint64, typ protowire.Type, field []byte, item protowire.Type) []uint64 {
	if typ != protowire.BytesType && typ != item {
		return list
	}
	for len(field) > 0 {
		switch {
		case item == protowire.VarintType:
			v, n := protowire.ConsumeVarint(field)
			if n < 0 {
				return list
			}
			list, field = append(list, v), field[n:]
		case item == protowire.Fixed32Type && len(field) >= 4:
			list, field = append(list, uint64(binary.LittleEndian.Uint32(field))), field[4:]
		case item == protowire.Fixed64Type && len(field) >= 8:
			list, field = append(list, binary.LittleEndian.Uint64(field)), field[8:]
		default:
			return list
		}
	}
	return list
}

// pack lays numbers out as they lie in memory.
func pack(elem ort.ElementType, numbers []uint64) ([]byte, error) {
	var size int
	switch elem {
	case ort.String:
		return nil, nil
	case ort.Complex64:
		size = 4
	case ort.Complex128:
		size = 8
	default:
		if size = elementBytes(elem); size == 0 && len(numbers) > 0 {
			return nil, fmt.Errorf("numbers of type %s", elem)
		}
	}
	data := make([]byte, 0, len(numbers)*size)
	var b [8]byte
	for _, n := range numbers {
		binary.LittleEndian.PutUint64(b[:], n)
		data = append(data, b[:size]...)
	}
	return data, nil
}

// elementBytes returns the size of an element, 0 if it varies or is below a
// byte.
func elementBytes(t ort.ElementType) int {
	switch t {
	case ort.Uint8, ort.Int8, ort.Bool, ort.Float8E4M3FN, ort.Float8E4M3FNUZ, ort.Float8E5M2, ort.Float8E5M2FNUZ:
		return 1
	case ort.Uint16, ort.Int16, ort.Float16, ort.BFloat16:
		return 2
	case ort.Float32, ort.Int32, ort.Uint32:
		return 4
	case ort.Float64, ort.Int64, ort.Uint64, ort.Complex64:
		return 8
	case ort.Complex128:
		return 16
	}
	return 0
}

// float returns element i of a tensor of floating-point numbers.
func (v value) float(i int) (float64, bool) {
	switch v.elem {
	case ort.Float32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(v.data[4*i:]))), true
	case ort.Float64:
		return math.Float64frombits(binary.LittleEndian.Uint64(v.data[8*i:])), true
	case ort.BFloat16:
		return float64(math.Float32frombits(uint32(binary.LittleEndian.Uint16(v.data[2*i:])) << 16)), true
	case ort.Float16:
		return half(binary.LittleEndian.Uint16(v.data[2*i:])), true
	}
	return 0, false
}

// half decodes a number of half precision.
func half(bits uint16) float64 {
	exponent, fraction := int(bits>>10&0x1f), float64(bits&0x3ff)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 0x1f:
		if f = math.Inf(1); fraction != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(1024+fraction, exponent-25)
	}
	if bits&0x8000 != 0 {
		f = -f
	}
	return f
}

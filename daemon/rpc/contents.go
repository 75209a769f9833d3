package rpc

import (
	"bytes"
	"encoding/binary"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// packContents returns the typed contents of an input as bytes.
func packContents(t *query.Tensor, c *inference.InferTensorContents) ([]byte, *query.Error) {
	if query.BinaryOnly(t.Type) {
		return nil, query.Invalid("input %q is %s, which has no typed contents: send raw_input_contents", query.Cut(t.Name), t.Type.Protocol())
	}
	data, elements, ok := pack(t.Type, c)
	switch {
	case !ok:
		return nil, query.Invalid("input %q: a value is out of the range of %s", query.Cut(t.Name), t.Type.Protocol())
	case elements != filled(c):
		return nil, query.Invalid("input %q is %s, and its contents have values of another type", query.Cut(t.Name), t.Type.Protocol())
	}
	return data, nil
}

// filled returns how many elements contents have, whatever their type.
func filled(c *inference.InferTensorContents) int {
	return len(c.GetBoolContents()) + len(c.GetIntContents()) + len(c.GetInt64Contents()) + len(c.GetUintContents()) +
		len(c.GetUint64Contents()) + len(c.GetFp32Contents()) + len(c.GetFp64Contents()) + len(c.GetBytesContents())
}

// pack returns the contents of a type as bytes, and how many elements they
// are. It reports false if one is out of range.
func pack(t models.DataType, c *inference.InferTensorContents) (data []byte, elements int, ok bool) {
	switch t {
	case models.Bool:
		return packFixed(c.GetBoolContents())
	case models.Int8:
		return packNarrow[int8](c.GetIntContents())
	case models.Int16:
		return packNarrow[int16](c.GetIntContents())
	case models.Int32:
		return packFixed(c.GetIntContents())
	case models.Int64:
		return packFixed(c.GetInt64Contents())
	case models.Uint8:
		return packNarrow[uint8](c.GetUintContents())
	case models.Uint16:
		return packNarrow[uint16](c.GetUintContents())
	case models.Uint32:
		return packFixed(c.GetUintContents())
	case models.Uint64:
		return packFixed(c.GetUint64Contents())
	case models.Float32:
		return packFixed(c.GetFp32Contents())
	case models.Float64:
		return packFixed(c.GetFp64Contents())
	case models.String:
		v := c.GetBytesContents()
		return packStrings(v), len(v), true
	}
	return nil, 0, false
}

func packFixed[E any](values []E) ([]byte, int, bool) {
	b, err := binary.Append(make([]byte, 0, binary.Size(values)), binary.LittleEndian, values)
	return b, len(values), err == nil
}

// packNarrow packs values as the narrower type that they stand for.
func packNarrow[N int8 | int16 | uint8 | uint16, W int32 | uint32](values []W) ([]byte, int, bool) {
	narrow := make([]N, len(values))
	for i, v := range values {
		if narrow[i] = N(v); W(narrow[i]) != v {
			return nil, 0, false
		}
	}
	return packFixed(narrow)
}

func packStrings(values [][]byte) []byte {
	size := 0
	for _, v := range values {
		size += query.StringHead + len(v)
	}
	b := make([]byte, 0, size)
	for _, v := range values {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(v)))
		b = append(b, v...)
	}
	return b
}

// unpack returns the bytes of an output as typed contents, which hold copies. It
// reports false for a type without them and for bytes that are not what the type
// says.
func unpack(t models.DataType, data []byte) (*inference.InferTensorContents, bool) {
	c := &inference.InferTensorContents{}
	if t == models.String {
		return c, unpackStrings(c, data)
	}
	if query.BinaryOnly(t) || t.Bytes() <= 0 || len(data)%t.Bytes() != 0 {
		return nil, false
	}
	switch t {
	case models.Bool:
		c.BoolContents = unpackFixed[bool](data)
	case models.Int8:
		c.IntContents = widen[int32](unpackFixed[int8](data))
	case models.Int16:
		c.IntContents = widen[int32](unpackFixed[int16](data))
	case models.Int32:
		c.IntContents = unpackFixed[int32](data)
	case models.Int64:
		c.Int64Contents = unpackFixed[int64](data)
	case models.Uint8:
		c.UintContents = widen[uint32](data)
	case models.Uint16:
		c.UintContents = widen[uint32](unpackFixed[uint16](data))
	case models.Uint32:
		c.UintContents = unpackFixed[uint32](data)
	case models.Uint64:
		c.Uint64Contents = unpackFixed[uint64](data)
	case models.Float32:
		c.Fp32Contents = unpackFixed[float32](data)
	case models.Float64:
		c.Fp64Contents = unpackFixed[float64](data)
	default:
		return nil, false
	}
	return c, true
}

// unpackFixed returns the elements that data holds, which are whole.
func unpackFixed[E any](data []byte) []E {
	var e E
	values := make([]E, len(data)/binary.Size(e))
	_, _ = binary.Decode(data, binary.LittleEndian, values)
	return values
}

func widen[W int32 | uint32, N int8 | int16 | uint8 | uint16](narrow []N) []W {
	values := make([]W, len(narrow))
	for i, v := range narrow {
		values[i] = W(v)
	}
	return values
}

func unpackStrings(c *inference.InferTensorContents, data []byte) bool {
	for len(data) > 0 {
		if len(data) < query.StringHead {
			return false
		}
		n := uint64(binary.LittleEndian.Uint32(data))
		if data = data[query.StringHead:]; n > uint64(len(data)) {
			return false
		}
		c.BytesContents = append(c.BytesContents, bytes.Clone(data[:n]))
		data = data[n:]
	}
	return true
}

package rpc

import (
	"bytes"
	"encoding/binary"
	"math"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// typeless reports whether a type has no field in typed contents.
func typeless(t models.DataType) bool { return t == models.Float16 || t == models.BFloat16 }

// packContents returns the typed contents of an input as bytes.
func packContents(t *query.Tensor, c *inference.InferTensorContents) ([]byte, *query.Error) {
	if typeless(t.Type) {
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
		v := c.GetBoolContents()
		return packFixed(v, 1, func(b []byte, e bool) []byte { return append(b, truth(e)) }), len(v), true
	case models.Int8, models.Int16, models.Int32:
		return packInts(c.GetIntContents(), t.Bytes())
	case models.Uint8, models.Uint16, models.Uint32:
		return packUints(c.GetUintContents(), t.Bytes())
	case models.Int64:
		v := c.GetInt64Contents()
		return packFixed(v, 8, func(b []byte, e int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(e)) }), len(v), true
	case models.Uint64:
		v := c.GetUint64Contents()
		return packFixed(v, 8, binary.LittleEndian.AppendUint64), len(v), true
	case models.Float32:
		v := c.GetFp32Contents()
		return packFixed(v, 4, func(b []byte, e float32) []byte { return binary.LittleEndian.AppendUint32(b, math.Float32bits(e)) }), len(v), true
	case models.Float64:
		v := c.GetFp64Contents()
		return packFixed(v, 8, func(b []byte, e float64) []byte { return binary.LittleEndian.AppendUint64(b, math.Float64bits(e)) }), len(v), true
	case models.String:
		v := c.GetBytesContents()
		return packStrings(v), len(v), true
	}
	return nil, 0, false
}

func packFixed[E any](values []E, size int, put func([]byte, E) []byte) []byte {
	b := make([]byte, 0, size*len(values))
	for _, v := range values {
		b = put(b, v)
	}
	return b
}

func packInts(values []int32, size int) ([]byte, int, bool) {
	b := make([]byte, 0, size*len(values))
	unused := 32 - 8*size
	for _, v := range values {
		if v<<unused>>unused != v {
			return nil, 0, false
		}
		b = putLow(b, uint32(v), size)
	}
	return b, len(values), true
}

func packUints(values []uint32, size int) ([]byte, int, bool) {
	b := make([]byte, 0, size*len(values))
	unused := 32 - 8*size
	for _, v := range values {
		if v<<unused>>unused != v {
			return nil, 0, false
		}
		b = putLow(b, v, size)
	}
	return b, len(values), true
}

// putLow appends the low bytes of v, little endian.
func putLow(b []byte, v uint32, size int) []byte {
	for range size {
		b = append(b, byte(v))
		v >>= 8
	}
	return b
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

func truth(v bool) byte {
	if v {
		return 1
	}
	return 0
}

// unpack returns the bytes of an output as typed contents. It reports false
// for a type without them and for bytes that are not what the type says.
func unpack(t models.DataType, data []byte) (*inference.InferTensorContents, bool) {
	c := &inference.InferTensorContents{}
	if t == models.String {
		return c, unpackStrings(c, data)
	}
	if typeless(t) || t.Bytes() <= 0 || len(data)%t.Bytes() != 0 {
		return nil, false
	}
	switch t {
	case models.Bool:
		c.BoolContents = unpackFixed(data, 1, func(b []byte) bool { return b[0] != 0 })
	case models.Int8:
		c.IntContents = unpackFixed(data, 1, func(b []byte) int32 { return int32(int8(b[0])) })
	case models.Int16:
		c.IntContents = unpackFixed(data, 2, func(b []byte) int32 { return int32(int16(binary.LittleEndian.Uint16(b))) })
	case models.Int32:
		c.IntContents = unpackFixed(data, 4, func(b []byte) int32 { return int32(binary.LittleEndian.Uint32(b)) })
	case models.Uint8:
		c.UintContents = unpackFixed(data, 1, func(b []byte) uint32 { return uint32(b[0]) })
	case models.Uint16:
		c.UintContents = unpackFixed(data, 2, func(b []byte) uint32 { return uint32(binary.LittleEndian.Uint16(b)) })
	case models.Uint32:
		c.UintContents = unpackFixed(data, 4, binary.LittleEndian.Uint32)
	case models.Int64:
		c.Int64Contents = unpackFixed(data, 8, func(b []byte) int64 { return int64(binary.LittleEndian.Uint64(b)) })
	case models.Uint64:
		c.Uint64Contents = unpackFixed(data, 8, binary.LittleEndian.Uint64)
	case models.Float32:
		c.Fp32Contents = unpackFixed(data, 4, func(b []byte) float32 { return math.Float32frombits(binary.LittleEndian.Uint32(b)) })
	case models.Float64:
		c.Fp64Contents = unpackFixed(data, 8, func(b []byte) float64 { return math.Float64frombits(binary.LittleEndian.Uint64(b)) })
	default:
		return nil, false
	}
	return c, true
}

func unpackFixed[E any](data []byte, size int, get func([]byte) E) []E {
	values := make([]E, 0, len(data)/size)
	for ; len(data) >= size; data = data[size:] {
		values = append(values, get(data))
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

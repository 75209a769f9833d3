package load

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// maxTensorBytes limits one tensor of one request.
const maxTensorBytes = 1 << 30

// errInput is returned when an input has a negative or too large dimension, a
// type that no values can be made for, or one that JSON cannot carry.
var errInput = errors.New("load: input")

// tensor is an input that requests carry.
type tensor struct {
	name  string
	elem  models.DataType
	shape []int64
	count int // elements
}

func newTensor(name, datatype string, shape []int64) (tensor, error) {
	elem, ok := models.ProtocolType(datatype)
	if !ok {
		return tensor{}, fmt.Errorf("%w %q has type %q", errInput, name, datatype)
	}
	n, most := int64(1), int64(maxTensorBytes/max(elem.Bytes(), 1))
	for _, d := range shape {
		if d < 0 || d > 0 && n > most/d {
			return tensor{}, fmt.Errorf("%w %q of type %s has shape %v, want at most %d elements", errInput, name, datatype, shape, most)
		}
		n *= d
	}
	return tensor{name, elem, shape, int(n)}, nil
}

// draw returns a function that makes values a model of any kind accepts: ones
// for masks, zeros for token types, else normals or small integers.
func (t *tensor) draw(r *rand.Rand, maxID int64) func() float64 {
	switch {
	case strings.Contains(t.name, "mask"):
		return func() float64 { return 1 }
	case strings.Contains(t.name, "token_type"):
		return func() float64 { return 0 }
	}
	limit := maxID
	switch t.elem {
	case models.Float16, models.BFloat16, models.Float32, models.Float64:
		return r.NormFloat64
	case models.Bool:
		limit = 2
	case models.Int8:
		limit = min(limit, math.MaxInt8+1)
	case models.Uint8:
		limit = min(limit, math.MaxUint8+1)
	case models.Int16:
		limit = min(limit, math.MaxInt16+1)
	case models.Uint16:
		limit = min(limit, math.MaxUint16+1)
	case models.Int32, models.Uint32:
		limit = min(limit, math.MaxInt32)
	}
	return func() float64 { return float64(r.Int64N(limit)) }
}

// appendBinary appends values as the binary tensor extension wants them.
func (t *tensor) appendBinary(b []byte, value func() float64) []byte {
	le := binary.LittleEndian
	for range t.count {
		v := value()
		switch t.elem {
		case models.Float32:
			b = le.AppendUint32(b, math.Float32bits(float32(v)))
		case models.Float64:
			b = le.AppendUint64(b, math.Float64bits(v))
		case models.Float16:
			b = le.AppendUint16(b, models.EncodeFloat16(float32(v)))
		case models.BFloat16:
			b = le.AppendUint16(b, uint16(math.Float32bits(float32(v))>>16))
		case models.String:
			s := strconv.FormatInt(int64(v), 10)
			b = append(le.AppendUint32(b, uint32(len(s))), s...)
		default:
			b = le.AppendUint64(b, uint64(int64(v)))
			b = b[:len(b)-8+t.elem.Bytes()]
		}
	}
	return b
}

// appendJSON appends values as a flat JSON array.
func (t *tensor) appendJSON(b []byte, value func() float64) ([]byte, error) {
	if t.elem == models.Float16 || t.elem == models.BFloat16 {
		return nil, fmt.Errorf("%w %q has type %s, which JSON cannot carry; leave out --json-tensors", errInput, t.name, t.elem)
	}
	b = append(b, '[')
	for i := range t.count {
		if i > 0 {
			b = append(b, ',')
		}
		v := value()
		switch t.elem {
		case models.Float32:
			b = strconv.AppendFloat(b, v, 'g', -1, 32)
		case models.Float64:
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		case models.Bool:
			b = strconv.AppendBool(b, v != 0)
		case models.String:
			b = strconv.AppendQuote(b, strconv.FormatInt(int64(v), 10))
		default:
			b = strconv.AppendInt(b, int64(v), 10)
		}
	}
	return append(b, ']'), nil
}

package daemon

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// writeInput puts an input into shared memory and returns how many bytes it took.
// This is the one copy that is made of it.
func writeInput(in *query.Input, dst []byte, p *query.Port) (int, *query.Error) {
	if in.Text == nil {
		return copy(dst, in.Data), nil
	}
	r := tensorReader{scanner: scanner{b: in.Text}, typ: p.Type, dims: in.Shape(), left: in.Elements, dst: dst}
	if err := r.read(); err != nil {
		return 0, query.Invalid("input %q, data from byte %d: %s", p.Name, in.TextAt, err.Message)
	}
	return r.at, nil
}

// tensorReader reads a JSON array, flat or nested as the shape says, as the
// elements of a tensor.
type tensorReader struct {
	scanner
	typ  models.DataType
	dims []int64
	left int64 // elements that may still come
	dst  []byte
	at   int // bytes of dst that are written
}

func (r *tensorReader) read() *query.Error {
	flat := r.flat()
	var err *query.Error
	if flat || len(r.dims) == 0 {
		err = r.row(r.left)
	} else {
		err = r.level(0)
	}
	if err != nil {
		return err
	}
	return r.end()
}

// flat reports whether the first element is not an array.
func (r *tensorReader) flat() bool {
	ahead := r.scanner
	return ahead.take('[') && ahead.peek() != '['
}

// level reads one dimension of a nested array. The shape bounds the recursion.
func (r *tensorReader) level(dim int) *query.Error {
	if dim == len(r.dims)-1 {
		return r.row(r.dims[dim])
	}
	if err := r.want('['); err != nil {
		return err
	}
	n := int64(0)
	for {
		more, err := r.more(n == 0, ']')
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if n++; n > r.dims[dim] {
			break
		}
		if err := r.level(dim + 1); err != nil {
			return err
		}
	}
	if n != r.dims[dim] {
		return r.ragged(r.dims[dim])
	}
	return nil
}

// row reads an array of exactly want elements.
func (r *tensorReader) row(want int64) *query.Error {
	if err := r.want('['); err != nil {
		return err
	}
	n := int64(0)
	for {
		more, err := r.more(n == 0, ']')
		if err != nil {
			return err
		}
		if !more {
			break
		}
		if n++; n > want || r.left == 0 {
			return r.ragged(want)
		}
		r.left--
		if err := r.element(); err != nil {
			return err
		}
	}
	if n != want {
		return r.ragged(want)
	}
	return nil
}

func (r *tensorReader) ragged(want int64) *query.Error {
	return r.fail("the shape wants " + strconv.FormatInt(want, 10) + " elements here")
}

func (r *tensorReader) element() *query.Error {
	switch r.typ {
	case models.String:
		return r.text()
	case models.Bool:
		return r.truth()
	}
	token, whole, err := r.number()
	if err != nil {
		return err
	}
	switch r.typ {
	case models.Float32, models.Float64:
		return r.float(token)
	}
	if !whole {
		return r.fail(string(query.Cut(token)) + " is not an integer")
	}
	return r.whole(token)
}

func (r *tensorReader) float(token []byte) *query.Error {
	bits := 8 * r.typ.Bytes()
	v, err := strconv.ParseFloat(string(token), bits)
	if err != nil {
		return r.outOfRange(token)
	}
	if bits == 32 {
		binary.LittleEndian.PutUint32(r.dst[r.at:], math.Float32bits(float32(v)))
	} else {
		binary.LittleEndian.PutUint64(r.dst[r.at:], math.Float64bits(v))
	}
	r.at += bits / 8
	return nil
}

func (r *tensorReader) whole(token []byte) *query.Error {
	var v uint64
	var err error
	bits := 8 * r.typ.Bytes()
	switch r.typ {
	case models.Int8, models.Int16, models.Int32, models.Int64:
		var signed int64
		signed, err = strconv.ParseInt(string(token), 10, bits)
		v = uint64(signed)
	default:
		if string(token) == "-0" {
			token = token[1:]
		}
		v, err = strconv.ParseUint(string(token), 10, bits)
	}
	if err != nil {
		return r.outOfRange(token)
	}
	r.put(v, bits/8)
	return nil
}

func (r *tensorReader) put(v uint64, size int) {
	dst := r.dst[r.at:]
	switch size {
	case 1:
		dst[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(dst, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(dst, uint32(v))
	default:
		binary.LittleEndian.PutUint64(dst, v)
	}
	r.at += size
}

func (r *tensorReader) outOfRange(token []byte) *query.Error {
	return r.fail(string(query.Cut(token)) + " is out of the range of " + r.typ.Protocol())
}

// truth reads a boolean: true, false, 1 or 0.
func (r *tensorReader) truth() *query.Error {
	r.peek()
	switch {
	case r.literal("true"):
		r.put(1, 1)
		return nil
	case r.literal("false"):
		r.put(0, 1)
		return nil
	}
	token, _, err := r.number()
	if err != nil || len(token) != 1 || token[0] > '1' {
		return r.fail("expected true, false, 1 or 0")
	}
	r.put(uint64(token[0]-'0'), 1)
	return nil
}

// text reads a string as four bytes of length and its bytes. An escape is
// never shorter than what it stands for, so the room suffices.
func (r *tensorReader) text() *query.Error {
	head := r.dst[r.at : r.at+query.StringHead]
	body := r.dst[r.at+query.StringHead:]
	v, err := r.str(body[:0])
	if err != nil {
		return err
	}
	n := copy(body, v)
	binary.LittleEndian.PutUint32(head, uint32(n))
	r.at += query.StringHead + n
	return nil
}

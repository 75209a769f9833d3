package http

import (
	"encoding/binary"
	"math"
	"runtime"
	"strconv"
	"unicode/utf8"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// sliceBytes is how much of a tensor is converted from or to JSON between two yields to the
// Go scheduler, about 0.1ms of work. Go preempts a goroutine only after 10ms; several such
// requests would delay the scheduler goroutine and the queries of other services that long.
const sliceBytes = 4 << 10

// writeInput writes the elements of an input into dst, parsing them if they are JSON text,
// and returns the number of bytes written.
func writeInput(dst []byte, in *query.Input) (int, *query.Error) {
	if in.Text == nil {
		return copy(dst, in.Data), nil
	}
	r := tensorReader{scanner: scanner{b: in.Text}, typ: in.Type, dst: dst}
	if err := r.read(in); err != nil {
		return 0, query.Invalid("input %q, data from byte %d: %s", in.Name, in.TextAt, err.Message)
	}
	return r.at, nil
}

// tensorReader parses a JSON array into the elements of a tensor.
type tensorReader struct {
	scanner
	typ models.DataType
	dst []byte

	// at is the number of bytes written to dst.
	at int
}

// read parses the whole array. It is either flat or nested exactly as the shape says; the
// second byte that is not space tells which.
func (r *tensorReader) read(in *query.Input) *query.Error {
	flat := [1]int64{in.Elements}
	dims := flat[:]
	// A copy of the scanner looks ahead without consuming anything.
	if ahead := r.scanner; ahead.take('[') && ahead.peek() == '[' && len(in.Shape) > 0 {
		dims = in.Shape
	}
	if err := r.array(dims); err != nil {
		return err
	}
	return r.end()
}

// array reads an array of exactly dims[0] elements, each an array of dims[1:] if there are
// more. The rank limits the recursion.
func (r *tensorReader) array(dims []int64) *query.Error {
	if err := r.want('['); err != nil {
		return err
	}
	want := dims[0]
	for n := int64(0); ; n++ {
		more, err := r.more(n == 0, ']')
		if err != nil {
			return err
		}
		if !more || n == want {
			if more || n < want {
				return r.fail("the shape needs " + strconv.FormatInt(want, 10) + " elements here")
			}
			return nil
		}
		if len(dims) > 1 {
			err = r.array(dims[1:])
		} else {
			err = r.element()
		}
		if err != nil {
			return err
		}
	}
}

// element reads one element of the type of the tensor.
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
		integer := integerOf(token)
		if integer == nil {
			return r.fail(string(query.Cut(token)) + " is not an integer, or exceeds those that a double represents exactly")
		}
		token = integer
	}
	return r.whole(token)
}

// integerOf converts a number with a fraction or an exponent to an integer: clients that
// keep all numbers as doubles write 1e3 or 1.0. It returns nil if the value is no integer,
// or beyond 2^53, where doubles no longer represent every integer.
func integerOf(token []byte) []byte {
	const exact = 1 << 53
	v, err := strconv.ParseFloat(string(token), 64)
	if err != nil || v != math.Trunc(v) || math.Abs(v) > exact {
		return nil
	}
	return strconv.AppendInt(nil, int64(v), 10)
}

// float writes a floating-point element. A value beyond the type's range is an error, not
// infinity.
func (r *tensorReader) float(token []byte) *query.Error {
	bits := 8 * r.typ.Bytes()
	v, err := strconv.ParseFloat(string(token), bits)
	if err != nil {
		return r.outOfRange(token)
	}
	if bits == 32 {
		r.put(uint64(math.Float32bits(float32(v))), 4)
	} else {
		r.put(math.Float64bits(v), 8)
	}
	return nil
}

// whole writes an integer element. An unsigned type accepts -0.
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
		// strconv.ParseUint accepts no sign.
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

// put writes one element of size bytes, little endian.
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
	if r.at += size; r.at%sliceBytes == 0 {
		runtime.Gosched()
	}
}

// outOfRange returns the error for a number that the type of the tensor cannot represent.
func (r *tensorReader) outOfRange(token []byte) *query.Error {
	return r.fail(string(query.Cut(token)) + " is out of the range of " + r.typ.Protocol())
}

// truth reads a Boolean element: true, false, 1 or 0.
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

// text reads a string element as four bytes of length and its bytes. An escape is never
// shorter than the character it stands for, so dst has enough room.
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

// appendElements appends the elements of a tensor as a flat list without brackets. It
// returns false if JSON cannot represent one of them.
func appendElements(b []byte, t models.DataType, data []byte) ([]byte, bool) {
	if t == models.String {
		return appendTexts(b, data)
	}
	size := t.Bytes()
	for i := 0; i+size <= len(data); i += size {
		if i > 0 {
			b = append(b, ',')
			if i%sliceBytes == 0 {
				runtime.Gosched()
			}
		}
		e := data[i : i+size]
		switch t {
		case models.Float32:
			v := float64(math.Float32frombits(binary.LittleEndian.Uint32(e)))
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, false
			}
			b = strconv.AppendFloat(b, v, 'g', -1, 32)
		case models.Float64:
			v := math.Float64frombits(binary.LittleEndian.Uint64(e))
			if math.IsNaN(v) || math.IsInf(v, 0) {
				return nil, false
			}
			b = strconv.AppendFloat(b, v, 'g', -1, 64)
		case models.Bool:
			b = strconv.AppendBool(b, e[0] != 0)
		case models.Int8, models.Int16, models.Int32, models.Int64:
			b = strconv.AppendInt(b, signed(e), 10)
		case models.Uint8, models.Uint16, models.Uint32, models.Uint64:
			b = strconv.AppendUint(b, unsigned(e), 10)
		default:
			return nil, false
		}
	}
	return b, true
}

// unsigned reads a little-endian element.
func unsigned(e []byte) uint64 {
	switch len(e) {
	case 1:
		return uint64(e[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(e))
	case 4:
		return uint64(binary.LittleEndian.Uint32(e))
	}
	return binary.LittleEndian.Uint64(e)
}

// signed reads a little-endian element and extends its sign.
func signed(e []byte) int64 {
	unused := 64 - 8*len(e)
	return int64(unsigned(e)<<unused) >> unused
}

// appendTexts appends the elements of a BYTES tensor as JSON strings. It returns false if
// one is not valid UTF-8.
func appendTexts(b, data []byte) ([]byte, bool) {
	for first := true; len(data) > 0; first = false {
		element, rest, ok := query.NextString(data)
		if !ok || !utf8.Valid(element) {
			return nil, false
		}
		if !first {
			b = append(b, ',')
		}
		b, data = appendString(b, element), rest
	}
	return b, true
}

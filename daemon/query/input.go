package query

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/overlapd/overlapd/models"
)

// Input is a decoded input of a query. Data points into the request, until Admit has copied
// it. Instead of Data a request may bring Text, a JSON array whose elements are parsed only
// when they are copied. TextAt is the position of Text in the body, for errors.
type Input struct {
	models.Tensor
	Name     string
	Text     []byte
	TextAt   int
	Elements int64

	// dims is the storage of Shape, so that an input needs no allocation.
	dims [MaxRank]int64

	// room is an upper bound on its bytes in shared memory.
	room int64

	// given is set once the request has brought the input.
	given bool
}

// AddDimension appends a dimension to the shape and multiplies Elements by it. It fails if
// the rank exceeds MaxRank, v is below 1, or the product overflows.
func (in *Input) AddDimension(v int64) *Error {
	rank := len(in.Shape)
	if rank == 0 {
		in.Elements = 1
	}
	switch {
	case rank == MaxRank:
		return Invalid("a shape has more than %d dimensions", MaxRank)
	case v < 1:
		return Invalid("a dimension must be at least 1, not %d", v)
	case v > math.MaxInt64/in.Elements:
		return Invalid("the elements of a shape overflow")
	}
	in.dims[rank] = v
	in.Shape = in.dims[:rank+1]
	in.Elements *= v
	return nil
}

// The shortest JSON array of n numbers has 2n+1 bytes, the shortest of n strings 3n+1.
const (
	numbersPerByte = 2
	stringsPerByte = 3
)

// checkBytes compares the length of an input's data with its shape and sets room. It
// rejects a shape that the text is too short to fill before any memory is taken for it:
// otherwise a few bytes of JSON could claim gigabytes.
func (in *Input) checkBytes() *Error {
	each := int64(numbersPerByte)
	if in.Type == models.String {
		if in.Text == nil {
			in.room = int64(len(in.Data))
			return in.checkStrings()
		}
		in.room, each = int64(len(in.Text))+StringHead*in.Elements, stringsPerByte
	} else {
		hi, size := bits.Mul64(uint64(in.Elements), uint64(in.Type.Bytes()))
		if hi != 0 || size > math.MaxInt64 {
			return Invalid("input %q: its shape overflows", in.Name)
		}
		in.room = int64(size)
	}
	switch {
	case in.Text == nil && in.room != int64(len(in.Data)):
		return Invalid("input %q: binary_data_size is %d, but its shape needs %d", in.Name, len(in.Data), in.room)
	case in.Text != nil && in.Elements > int64(len(in.Text))/each:
		return Invalid("input %q: its shape has %d elements, but its data has fewer", in.Name, in.Elements)
	}
	return nil
}

// NextString splits the first element off the data of a BYTES tensor. It returns false if
// the data ends within that element.
func NextString(data []byte) (element, rest []byte, ok bool) {
	if len(data) < StringHead {
		return nil, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(data))
	if data = data[StringHead:]; n > uint64(len(data)) {
		return nil, nil, false
	}
	return data[:n], data[n:], true
}

// checkStrings walks the lengths in a binary BYTES tensor and compares the number of
// elements with the shape.
func (in *Input) checkStrings() *Error {
	n := int64(0)
	for rest, ok := in.Data, true; len(rest) > 0; n++ {
		if len(rest) < StringHead {
			return Invalid("input %q: its data ends within the length of element %d", in.Name, n)
		}
		if _, rest, ok = NextString(rest); !ok {
			return Invalid("input %q: element %d goes beyond the end of its data", in.Name, n)
		}
	}
	if n != in.Elements {
		return Invalid("input %q: its data has %d elements, but its shape has %d", in.Name, n, in.Elements)
	}
	return nil
}

// StringHead is the number of bytes of the length before each element of a BYTES tensor.
const StringHead = 4

// BinaryOnly reports whether the protocols carry elements of a type only as raw bytes,
// neither as JSON nor as typed contents.
func BinaryOnly(t models.DataType) bool { return t == models.Float16 || t == models.BFloat16 }

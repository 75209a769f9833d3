package wire

import (
	"encoding/binary"
	"fmt"

	"github.com/overlapd/overlapd/models"
)

var le = binary.LittleEndian

// decoder reads fixed fields from the front of a payload. The first field that is
// missing or out of bounds sets failed; all later fields are then zero. Callers thus
// check for errors once, with done.
type decoder struct {
	data   []byte
	failed bool
}

// zeros is returned in place of a missing number.
var zeros [8]byte

// take returns the next n bytes. If they are missing, it returns zeros, at most as
// many as the largest number needs.
func (d *decoder) take(n int) []byte {
	if d.failed || len(d.data) < n {
		d.failed = true
		return zeros[:min(n, len(zeros))]
	}
	field := d.data[:n]
	d.data = d.data[n:]
	return field
}

func (d *decoder) uint8() uint8   { return d.take(1)[0] }
func (d *decoder) uint32() uint32 { return le.Uint32(d.take(4)) }
func (d *decoder) uint64() uint64 { return le.Uint64(d.take(8)) }

// size reads a number of bytes, elements or nanoseconds, which must not be negative.
func (d *decoder) size() int64 {
	v := int64(d.uint64())
	if v < 0 {
		d.failed = true
		return 0
	}
	return v
}

// count reads the number of elements that follow, of at least elementBytes each. It
// rejects a number that the payload cannot hold, before memory is allocated for it.
func (d *decoder) count(limit, elementBytes int) int {
	n := d.uint32()
	if d.failed || n > uint32(limit) || int(n)*elementBytes > len(d.data) {
		d.failed = true
		return 0
	}
	return int(n)
}

// done returns an error if a field was missing or invalid, or bytes are left over.
func (d *decoder) done(k Kind) error {
	switch {
	case d.failed:
		return fmt.Errorf("%w: %s", ErrMessage, k)
	case len(d.data) != 0:
		return fmt.Errorf("%w: %s has %d bytes too many", ErrMessage, k, len(d.data))
	}
	return nil
}

// maxPosition limits the position of an operator, and the size of a batch.
const maxPosition = 1<<31 - 1

// tensorBytes is the encoded size of a tensor without its shape.
const tensorBytes = 4 + 1 + 8 + 8

func checkTensor(t *models.Tensor) error {
	if len(t.Shape) > MaxRank || t.Offset < 0 || t.Bytes < 0 {
		return fmt.Errorf("%w: tensor of rank %d, %d bytes at %d", ErrMessage, len(t.Shape), t.Bytes, t.Offset)
	}
	for _, dim := range t.Shape {
		if dim < 0 {
			return fmt.Errorf("%w: shape %v", ErrMessage, t.Shape)
		}
	}
	return nil
}

// Find sets the data of a tensor in memory. It returns false if they lie outside, or if
// their number does not match the type and shape.
func Find(t *models.Tensor, memory []byte) bool {
	t.Data = nil
	if fits(t.Type, t.Shape, t.Bytes) {
		t.Data = window(memory, t.Offset, t.Bytes)
	}
	return t.Data != nil
}

// appendList appends the length of a list and each of its elements.
func appendList[T any](dst []byte, list []T, limit int, one func([]byte, *T) ([]byte, error)) ([]byte, error) {
	if len(list) > limit {
		return nil, fmt.Errorf("%w: list of %d, the limit is %d", ErrMessage, len(list), limit)
	}
	dst = le.AppendUint32(dst, uint32(len(list)))
	for i := range list {
		var err error
		if dst, err = one(dst, &list[i]); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

func appendTensor(dst []byte, t *models.Tensor) ([]byte, error) {
	if err := checkTensor(t); err != nil {
		return nil, err
	}
	dst = le.AppendUint32(dst, uint32(t.Type))
	dst = append(dst, uint8(len(t.Shape)))
	for _, dim := range t.Shape {
		dst = le.AppendUint64(dst, uint64(dim))
	}
	dst = le.AppendUint64(dst, uint64(t.Offset))
	return le.AppendUint64(dst, uint64(t.Bytes)), nil
}

// tensor reads one tensor. It appends the shape to dims, which several tensors share,
// and returns dims.
func (d *decoder) tensor(t *models.Tensor, dims []int64) []int64 {
	t.Type = models.DataType(d.uint32())
	rank := int(d.uint8())
	if rank > MaxRank {
		d.failed = true
		return dims
	}
	start := len(dims)
	for range rank {
		dims = append(dims, d.size())
	}
	t.Shape = dims[start:len(dims):len(dims)]
	t.Offset = d.size()
	t.Bytes = d.size()
	return dims
}

package segments

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// batch is a batch between its first and its last operator.
type batch struct {
	id models.BatchID

	// sizes holds the batch dimension of each query, in the order in which inputs are
	// gathered. size is their sum.
	sizes []int
	size  int

	// next is the operator that runs next. units is the share of the device's units on
	// which the current or the last span runs.
	next  int
	units int

	frame *frame

	// given holds the values that the batch closes: inputs of the model, and values that
	// another worker has produced. moved lists the latter unless they lie in the frame.
	given []*ort.Value
	moved []movedValue

	key layoutKey

	// shapes holds, by value, what the current run has shown. It is nil if the layout is
	// known.
	shapes []shape

	// bytes is the memory that ONNX Runtime holds for the batch. gathered is the part of it
	// that holds gathered inputs.
	bytes    int64
	gathered int64

	// planned and work are used only while the layout is being learned. planned is the part
	// of bytes that will lie in a frame; work is the peak of the remaining memory.
	planned int64
	work    int64

	// regions is device memory that the batch frees.
	regions []region
}

// grew updates bytes after an operator has run on a device, for a batch with a known
// layout.
func (b *batch) grew() {
	if len(b.frame.loose) > 0 {
		b.bytes = b.gathered + b.frame.looseBytes()
	}
}

// taught records that operator p has run, for a batch whose layout is being learned. It
// stores the shapes of the outputs, and frees the values that p was the last to use. peak
// is the most arena memory that the batch had while p ran.
func (b *batch) taught(m *loaded, p int, peak int64) {
	pc := &m.cut.pieces[p]
	for pos, id := range pc.outputs {
		s := shapeOf(b.frame.program.Output(p, pos))
		s.known = s.dims != nil && m.known[id].shape && m.types[id].Elem.Bytes() > 0
		b.shapes[id] = s
		b.count(s, 1)
	}
	b.work = max(b.work, peak-b.planned)
	for _, ids := range [2][]int32{pc.inputs, pc.outputs} {
		for _, id := range ids {
			if made := m.made[id]; made.piece >= b.key.from && m.cut.lastAt[id] <= p {
				b.frame.program.Drop(made.piece, made.pos)
				b.count(b.shapes[id], -1)
			}
		}
	}
}

// count adds the size of a value to the memory that the batch holds if sign is 1, and
// subtracts it if sign is -1.
func (b *batch) count(s shape, sign int64) {
	b.bytes += sign * s.bytes
	if s.known {
		b.planned += sign * s.bytes
	}
}

// value returns the value with this ID, or nil if it no longer exists.
func (b *batch) value(m *loaded, id int32) *ort.Value {
	if v := b.frame.values[id]; v != nil {
		return v
	}
	for i := range b.moved {
		if b.moved[i].id == id {
			return b.moved[i].value
		}
	}
	made := m.made[id]
	return b.frame.program.Output(made.piece, made.pos)
}

// reads reports whether the batch needs an input of the model. A batch that continues from
// another worker needs only the inputs that later operators read.
func (b *batch) reads(m *loaded, id int32) bool {
	return b.key.from == 0 || m.cut.lastAt[id] >= b.key.from
}

// share returns the shape of one query's part of an output that has the shape dims.
func (b *batch) share(query int, dims []int64) []int64 {
	share := append([]int64(nil), dims...)
	if len(b.sizes) > 1 {
		share[0] = int64(b.sizes[query])
	}
	return share
}

// close releases everything that the batch holds except its frame. No queued work may still
// use it.
func (b *batch) close(d device) {
	for _, v := range b.given {
		v.Close()
	}
	for _, r := range b.regions {
		d.release(r)
	}
	b.given, b.moved, b.regions = nil, nil, nil
	b.bytes = 0
}

// shape is what a run has shown about one value.
type shape struct {
	dims  []int64
	bytes int64

	// known is set if the value is a tensor and its shape is the same in every batch with
	// this layout key.
	known bool
}

// shapeOf returns the shape of a tensor, and the zero shape for any other value.
func shapeOf(v *ort.Value) shape {
	if !v.IsTensor() {
		return shape{}
	}
	dims := v.Shape()
	return shape{dims: dims, bytes: elements(dims) * int64(v.Elem().Bytes())}
}

// elements returns the number of elements of a tensor with these dimensions. The dimensions
// are those of an existing tensor, so the product does not overflow.
func elements(dims []int64) int64 {
	n, _ := models.Elements(dims)
	return n
}

// signature returns a string that identifies a list of shapes.
func signature(dims [][]int64) string {
	var buf [128]byte
	key := buf[:0]
	for _, shape := range dims {
		for _, d := range shape {
			key = strconv.AppendInt(key, d, 36)
			key = append(key, ',')
		}
		key = append(key, ';')
	}
	return string(key)
}

// sum returns the sum of the batch dimensions of a batch's queries.
func sum(sizes []int) (total int) {
	for _, n := range sizes {
		total += n
	}
	return total
}

// A tensor of strings is serialized as in the Open Inference Protocol: for each element its
// length in four little-endian bytes, then its bytes.

// parseStrings splits the serialized form of n strings. The results point into data.
func parseStrings(data []byte, n int64) ([][]byte, error) {
	if n < 0 || n*4 > int64(len(data)) {
		return nil, fmt.Errorf("%w: %d bytes cannot hold %d strings", wire.ErrInput, len(data), n)
	}
	list := make([][]byte, 0, n)
	for len(data) >= 4 {
		size := int64(binary.LittleEndian.Uint32(data))
		if size > int64(len(data)-4) {
			return nil, fmt.Errorf("%w: string %d has a declared length of %d bytes, but %d are left", wire.ErrInput, len(list), size, len(data)-4)
		}
		list = append(list, data[4:4+size])
		data = data[4+size:]
	}
	if len(data) != 0 || int64(len(list)) != n {
		return nil, fmt.Errorf("%w: found %d strings and %d more bytes, expected %d strings", wire.ErrInput, len(list), len(data), n)
	}
	return list, nil
}

// stringsBytes returns the size of the serialized form of list.
func stringsBytes(list [][]byte) int64 {
	n := int64(4 * len(list))
	for _, s := range list {
		n += int64(len(s))
	}
	return n
}

// putStrings writes the serialized form of list to dst, which must be stringsBytes(list)
// long.
func putStrings(dst []byte, list [][]byte) {
	for _, s := range list {
		binary.LittleEndian.PutUint32(dst, uint32(len(s)))
		copy(dst[4:], s)
		dst = dst[4+len(s):]
	}
}

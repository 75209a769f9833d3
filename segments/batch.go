package segments

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// batch is one batch between its first and its last operator.
type batch struct {
	id       models.BatchID
	sizes    []int // batch dimension of each query, in gather order
	size     int   // their sum
	next     int   // the operator to run next
	frame    *frame
	given    []*ort.Value // model inputs, and values from elsewhere, that are the batch's to close
	moved    []movedValue // from elsewhere, and not in the frame's memory
	key      layoutKey
	shapes   []shape  // by value, what this run taught so far; nil if nothing is to learn
	bytes    int64    // what ONNX Runtime holds for it
	gathered int64    // the part of bytes that holds gathered inputs
	planned  int64    // while it is learned from, the part of bytes that will lie in a frame
	work     int64    // while it is learned from, what it had besides at most
	regions  []region // memory of the device for the batch to free
}

// grew counts what ONNX Runtime has allocated on a device for a batch whose shapes
// are known.
func (b *batch) grew() {
	if len(b.frame.loose) > 0 {
		b.bytes = b.gathered + b.frame.looseBytes()
	}
}

// taught takes in that operator p has run: it keeps the shapes that are to be
// learned, and frees what p used last. Peak is what the batch had of the arena at most
// meanwhile.
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

// count adds a value that the batch holds, or takes it away.
func (b *batch) count(s shape, sign int64) {
	b.bytes += sign * s.bytes
	if s.known {
		b.planned += sign * s.bytes
	}
}

// value returns the value of id, nil if it does not exist any more.
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

// reads reports whether the batch needs an input of the model.
func (b *batch) reads(m *loaded, id int32) bool {
	return b.key.from == 0 || m.cut.lastAt[id] >= b.key.from
}

// share returns the shape of a query's part of an output of this shape.
func (b *batch) share(query int, dims []int64) []int64 {
	share := append([]int64(nil), dims...)
	if len(b.sizes) > 1 {
		share[0] = int64(b.sizes[query])
	}
	return share
}

// close lets go of all that the batch holds but its frame. Nothing that uses
// it may be queued.
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

// shape is what a run teaches of one value.
type shape struct {
	dims  []int64
	bytes int64
	known bool // whether the value is a tensor whose shape holds for every batch of this signature
}

// shapeOf returns the shape of a tensor, and nothing for any other value.
func shapeOf(v *ort.Value) shape {
	if !v.IsTensor() {
		return shape{}
	}
	dims := v.Shape()
	return shape{dims: dims, bytes: elements(dims) * int64(v.Elem().Bytes())}
}

// elements returns the number of elements of a tensor with these dimensions.
func elements(dims []int64) int64 {
	n, _ := models.Elements(dims) // of a shape that there is
	return n
}

// signature writes shapes as a key.
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

func sum(sizes []int) (total int) {
	for _, n := range sizes {
		total += n
	}
	return total
}

// A tensor of strings travels as the Open Inference Protocol has it: for each
// element its length in four little-endian bytes, then its bytes.

// parseStrings splits the serialized form of n strings.
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
		return nil, fmt.Errorf("%w: %d strings and %d stray bytes where %d strings belong", wire.ErrInput, len(list), len(data), n)
	}
	return list, nil
}

func stringsBytes(list [][]byte) int64 {
	n := int64(4 * len(list))
	for _, s := range list {
		n += int64(len(s))
	}
	return n
}

// putStrings writes the serialized form of list to dst, which has its size.
func putStrings(dst []byte, list [][]byte) {
	for _, s := range list {
		binary.LittleEndian.PutUint32(dst, uint32(len(s)))
		copy(dst[4:], s)
		dst = dst[4+len(s):]
	}
}

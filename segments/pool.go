package segments

import (
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// Limits of a pool.
const (
	// maxLayouts is how many layouts an engine keeps, one for each set of input shapes. It
	// drops the least recently used layout when there are more.
	maxLayouts = 256

	// maxIdleFrames is how many frames without a batch are kept for later batches.
	maxIdleFrames = 16
)

// pool owns the memory of a model's batches, within a budget: the layouts learned from
// earlier batches, the frames kept for later ones, and the batches that are running or
// paused.
type pool struct {
	of      *loaded
	layouts map[layoutKey]*layout

	// clock counts uses of layouts, to find the least recently used one.
	clock uint64

	idle    []*frame
	batches map[models.BatchID]*batch
	budget  int64

	// used is the memory of all frames, both idle and in use.
	used int64

	// bounding is how many calls of bounded are in progress, and base the memory of the
	// arena that belonged to no batch and no larger share when the first of them began.
	bounding int
	base     int64

	// graphs is the last ID given to the CUDA graphs of a frame.
	graphs int

	options layoutOptions
}

// newPool returns an empty pool for the batches of a model. A budget of 0 is
// DefaultIntermediateBytes.
func newPool(m *loaded, budget int64) *pool {
	if budget <= 0 {
		budget = DefaultIntermediateBytes
	}
	return &pool{
		of: m, budget: budget, options: layoutOptions{inPlace: true, far: m.far},
		layouts: map[layoutKey]*layout{}, batches: map[models.BatchID]*batch{},
	}
}

// layoutKey identifies what a layout applies to: a set of input shapes, whether the inputs
// are gathered into the frame, and the operator from which batches run. That operator is 0
// unless the batches come from another worker.
type layoutKey struct {
	shapes   string
	gathered bool
	from     int
}

// layout returns the layout for a key, or nil if it is not known.
func (p *pool) layout(key layoutKey) *layout {
	l := p.layouts[key]
	if l != nil {
		p.clock++
		l.used = p.clock
	}
	return l
}

// remember stores a layout. If there are too many, it drops the least recently used one and
// closes that layout's idle frames.
func (p *pool) remember(key layoutKey, l *layout) {
	for len(p.layouts) >= maxLayouts {
		var oldest layoutKey
		for k, other := range p.layouts {
			if of := p.layouts[oldest]; of == nil || other.used < of.used {
				oldest = k
			}
		}
		gone := p.layouts[oldest]
		delete(p.layouts, oldest)
		for i := len(p.idle) - 1; i >= 0; i-- {
			if p.idle[i].layout == gone {
				p.closeIdle(i)
			}
		}
	}
	p.clock++
	l.used = p.clock
	p.layouts[key] = l
}

// take returns a frame for b, whose layout is l. It reuses an idle frame if there is one.
func (p *pool) take(b *batch, l *layout) (*frame, error) {
	for i, f := range p.idle {
		if f.layout == l && l != nil {
			p.idle = slices.Delete(p.idle, i, i+1)
			return f, nil
		}
	}
	for l != nil && !p.makeRoom(l.bytes+p.workBytes(l)) {
		if !p.awaitRun() {
			return nil, p.excess(b, fmt.Errorf("a batch of %d needs %d bytes", b.size, l.bytes+l.work))
		}
	}
	f, err := newFrame(p.of, l, b.size)
	if errors.Is(err, wire.ErrDeviceMemory) && len(p.idle) > 0 {
		// Other processes use the GPU's memory, too. Closing the idle frames may free
		// enough.
		p.closeAllIdle()
		f, err = newFrame(p.of, l, b.size)
	}
	if err == nil {
		p.used += f.memory.bytes
	}
	return f, err
}

// give keeps a frame for the next batch with its layout. It closes the frame if the layout
// is no longer stored.
func (p *pool) give(f *frame, key layoutKey) {
	f.reset()
	p.idle = append(p.idle, f)
	if f.layout == nil || p.layouts[key] != f.layout {
		p.closeIdle(len(p.idle) - 1)
		return
	}
	if len(p.idle) > maxIdleFrames {
		p.closeIdle(0)
	}
}

// closeIdle closes the idle frame with index i.
func (p *pool) closeIdle(i int) {
	p.used -= p.idle[i].memory.bytes
	p.idle[i].close(p.of.device)
	p.idle = slices.Delete(p.idle, i, i+1)
}

// frame is the memory of a batch in execution: a region arranged by a layout, a tensor for
// each planned value, and a program that is bound to these tensors. The next batch with the
// same layout reuses it. ONNX Runtime allocates values that are not part of the layout when
// they are produced, and frees them after their last use.
type frame struct {
	// layout is nil while the shapes are being learned.
	layout *layout

	memory region

	// values holds the tensor of each planned value, and nil for other values.
	values []*ort.Value

	program *ort.Program

	// loose lists the values that ONNX Runtime allocates for each batch.
	loose []use

	captures captures
}

// newFrame binds the sessions of m for batches of the given size to new memory that l
// arranges. If l is nil, ONNX Runtime allocates all values.
func newFrame(m *loaded, l *layout, size int) (*frame, error) {
	program, err := m.device.Program(m.set(m.setOf(size)))
	if err != nil {
		return nil, err
	}
	f := &frame{layout: l, program: program, values: make([]*ort.Value, len(m.types))}
	err = f.place(m)
	for p := 0; err == nil && p < len(m.cut.pieces); p++ {
		err = f.bind(m, p)
	}
	if err != nil {
		f.close(m.device)
		return nil, err
	}
	f.captures = capturesOf(m, f)
	return f, nil
}

// place allocates the frame's memory and creates the tensors in it.
func (f *frame) place(m *loaded) (err error) {
	if f.layout == nil || f.layout.bytes == 0 {
		return nil
	}
	if f.memory, err = m.device.alloc(f.layout.bytes); err != nil {
		return err
	}
	for id, b := range f.layout.buffer {
		if b < 0 {
			continue
		}
		s := f.layout.shapes[id]
		f.values[id], err = m.device.tensor(f.memory, f.offset(int32(id)), s.bytes, m.types[id].Elem, s.dims)
		if err != nil {
			return err
		}
	}
	return nil
}

// bind connects piece p to its values, except for inputs of the model that do not lie in
// the frame.
func (f *frame) bind(m *loaded, p int) error {
	for pos, id := range m.cut.pieces[p].outputs {
		f.program.SetOutput(p, pos, f.values[id])
		if f.values[id] == nil {
			f.loose = append(f.loose, use{p, pos})
		}
		// While a layout is being learned, values are kept until taught has seen them.
		last := m.cut.lastAt[id]
		if f.values[id] == nil && f.layout != nil && last < len(m.cut.pieces) {
			if err := f.program.DropAfter(max(p, last), p, pos); err != nil {
				return err
			}
		}
	}
	for pos, id := range m.cut.pieces[p].inputs {
		made := m.made[id]
		switch {
		case f.values[id] != nil:
			f.program.SetInput(p, pos, f.values[id])
		case made.piece >= 0:
			f.program.Link(p, pos, made.piece, made.pos)
		}
	}
	return nil
}

// offset returns the position of a planned value in the frame's memory.
func (f *frame) offset(id int32) int64 { return f.layout.buffers[f.layout.buffer[id]].offset }

// address returns where a planned value lies on a device.
func (f *frame) address(id int32) uint64 { return f.memory.address + uint64(f.offset(id)) }

// looseBytes returns the size of the values that ONNX Runtime currently holds for the
// batch.
func (f *frame) looseBytes() (total int64) {
	for _, at := range f.loose {
		if v := f.program.Output(at.piece, at.pos); v != nil {
			total += shapeOf(v).bytes
		}
	}
	return total
}

// reset prepares the frame for another batch.
func (f *frame) reset() {
	f.captures.ran++
	for _, at := range f.loose {
		f.program.Drop(at.piece, at.pos)
	}
}

// close frees the frame. No queued work may still use it.
func (f *frame) close(d device) {
	f.program.Close()
	for _, v := range f.values {
		if v != nil {
			v.Close()
		}
	}
	if f.memory.bytes > 0 {
		d.release(f.memory)
		f.memory = region{}
	}
}

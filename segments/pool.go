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
	// maxLayouts is how many sets of input shapes an engine remembers the
	// memory layout of. The least recently used one is forgotten.
	maxLayouts = 256

	// maxIdleFrames is how many frames without a batch are kept to be used
	// again.
	maxIdleFrames = 16
)

// pool has the memory of the batches of a model, within a budget: the layouts
// that earlier batches taught, the frames that are kept for later ones, and the
// batches that run or pause.
type pool struct {
	of      *loaded
	layouts map[layoutKey]*layout
	clock   uint64 // counts uses of layouts, to forget the oldest
	idle    []*frame
	batches map[models.BatchID]*batch
	budget  int64
	used    int64 // by frames, in use and idle
	graphs  int   // numbers of CUDA graphs that frames have had
	layoutOptions
}

// layoutKey names the set of input shapes that a layout holds for, and the operator at
// which its batches come from another worker, 0 for those that start here.
type layoutKey struct {
	shapes   string
	gathered bool
	from     int
}

// LiveBytes returns, for each operator, the bytes of intermediates alive after
// it in a batch of the given size, nil if no such batch has run.
func (p *pool) LiveBytes(size int) []int64 {
	for _, l := range p.layouts {
		if l.size == size {
			return l.live
		}
	}
	return nil
}

// layout returns the layout of a key, nil if it is still to be learned.
func (p *pool) layout(key layoutKey) *layout {
	l := p.layouts[key]
	if l != nil {
		p.clock++
		l.used = p.clock
	}
	return l
}

// remember keeps a layout, in the place of the one that was not used for longest
// if there are too many.
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

// take returns a frame for b, whose layout is l, an idle one if there is one.
func (p *pool) take(b *batch, l *layout) (*frame, error) {
	for i, f := range p.idle {
		if f.layout == l && l != nil {
			p.idle = slices.Delete(p.idle, i, i+1)
			return f, nil
		}
	}
	if l != nil && !p.makeRoom(l.bytes+p.workBytes(l)) {
		return nil, p.excess(b, fmt.Errorf("a batch of %d needs %d bytes", b.size, l.bytes+l.work))
	}
	f, err := newFrame(p.of, l, b.size)
	if errors.Is(err, wire.ErrDeviceMemory) && len(p.idle) > 0 {
		// Others take memory of a GPU as well: what is kept for later may help.
		p.closeAllIdle()
		f, err = newFrame(p.of, l, b.size)
	}
	if err == nil {
		p.used += f.memory.bytes
	}
	return f, err
}

// give keeps a frame for the next batch of its layout, unless that layout is
// not remembered any more.
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

func (p *pool) closeIdle(i int) {
	p.used -= p.idle[i].memory.bytes
	p.idle[i].close(p.of.device)
	p.idle = slices.Delete(p.idle, i, i+1)
}

// frame is the memory of one batch in execution: a mapping laid out by a
// layout, with a tensor on every planned value, and a program bound to them.
// It is used again for the next batch of the same layout. Values without a
// place in the layout are allocated by ONNX Runtime as they are made and freed
// after their last use.
type frame struct {
	layout  *layout // nil while the shapes are being learned
	memory  region
	staging staging
	values  []*ort.Value // by value; planned ones only
	program *ort.Program
	loose   []use // values that ONNX Runtime allocates for each batch
	captures
}

// newFrame binds the sessions of m for batches of a size to fresh memory laid out by l,
// or to none if l is nil.
func newFrame(m *loaded, l *layout, size int) (*frame, error) {
	program, err := m.device.program(m.set(m.setOf(size)))
	if err != nil {
		return nil, err
	}
	program.Slow(m.slow)
	f := &frame{layout: l, program: program, values: make([]*ort.Value, len(m.types))}
	if m.oneThread != nil {
		err = program.AddOneThread(m.oneThread)
	}
	if err == nil {
		err = f.place(m)
	}
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

// place makes the tensors that lie in the frame's memory.
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

// bind connects piece p to its values, but for the inputs of the model.
func (f *frame) bind(m *loaded, p int) error {
	for pos, id := range m.cut.pieces[p].outputs {
		f.program.SetOutput(p, pos, f.values[id])
		if f.values[id] == nil {
			f.loose = append(f.loose, use{p, pos})
		}
		// What learns keeps its values until they were looked at.
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

// offset returns where a planned value lies in the frame's memory.
func (f *frame) offset(id int32) int64 { return f.layout.buffers[f.layout.buffer[id]].offset }

// looseBytes returns the size of the values that ONNX Runtime holds.
func (f *frame) looseBytes() (total int64) {
	for _, at := range f.loose {
		if v := f.program.Output(at.piece, at.pos); v != nil {
			total += shapeOf(v).bytes
		}
	}
	return total
}

// reset makes the frame ready for another batch.
func (f *frame) reset() {
	f.ran++
	for _, at := range f.loose {
		f.program.Drop(at.piece, at.pos)
	}
}

// close frees the frame. Nothing that uses it may be queued.
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
	f.staging.close()
}

package segments

import (
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// frame is the memory of one batch in execution: a mapping laid out by a
// layout, with a tensor on every planned value, and a program bound to them.
// It is used again for the next batch of the same layout. Values without a
// place in the layout are allocated by ONNX Runtime as they are made and freed
// after their last use.
type frame struct {
	layout  *layout // nil while the shapes are being learned
	memory  region
	staging []byte       // of a device, host memory in which small inputs are gathered
	pinned  bool         // whether staging is
	values  []*ort.Value // by value; planned ones only
	program *ort.Program
	loose   []use // values that ONNX Runtime allocates for each batch
}

// newFrame binds all sessions of e to fresh memory laid out by l, or to none
// if l is nil.
func (e *CutModel) newFrame(l *layout) (*frame, error) {
	program, err := e.device.program(e.sessions)
	if err != nil {
		return nil, err
	}
	f := &frame{layout: l, program: program, values: make([]*ort.Value, len(e.types))}
	if err := f.place(e); err != nil {
		f.close(e.device)
		return nil, err
	}
	for p := range e.cut.pieces {
		if err := f.bind(e, p); err != nil {
			f.close(e.device)
			return nil, err
		}
	}
	return f, nil
}

// place makes the tensors that lie in the frame's memory.
func (f *frame) place(e *CutModel) (err error) {
	if f.layout == nil || f.layout.bytes == 0 {
		return nil
	}
	if f.memory, err = e.device.alloc(f.layout.bytes); err != nil {
		return err
	}
	for id, b := range f.layout.buffer {
		if b < 0 {
			continue
		}
		s := f.layout.shapes[id]
		f.values[id], err = e.device.tensor(f.memory, f.offset(int32(id)), s.bytes, ort.ElementType(e.types[id].Elem), s.dims)
		if err != nil {
			return err
		}
	}
	return nil
}

// bind connects piece p to its values, but for the inputs of the model.
func (f *frame) bind(e *CutModel, p int) error {
	for pos, id := range e.cut.pieces[p].outputs {
		f.program.SetOutput(p, pos, f.values[id])
		if f.values[id] == nil {
			f.loose = append(f.loose, use{p, pos})
		}
		// What learns keeps its values until they were looked at.
		last := e.cut.lastAt[id]
		if f.values[id] == nil && f.layout != nil && last < len(e.cut.pieces) {
			if err := f.program.DropAfter(max(p, last), p, pos); err != nil {
				return err
			}
		}
	}
	for pos, id := range e.cut.pieces[p].inputs {
		made := e.made[id]
		switch {
		case f.values[id] != nil:
			f.program.SetInput(p, pos, f.values[id])
		case made.piece >= 0:
			f.program.Link(p, pos, made.piece, made.pos)
		}
	}
	return nil
}

func (f *frame) bytes() int64 { return f.memory.bytes }

// offset returns where a planned value lies in the frame's memory.
func (f *frame) offset(id int32) int64 { return f.layout.buffers[f.layout.buffer[id]].offset }

// data returns the bytes of a planned value, which the host must see.
func (f *frame) data(id int32) []byte {
	at := f.offset(id)
	return f.memory.host[at : at+f.layout.shapes[id].bytes]
}

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
		// What cannot be freed is gone with the device, which says so elsewhere.
		_ = d.free(f.memory)
		f.memory = region{}
	}
	f.closeStaging(d)
}

func (f *frame) closeStaging(d device) {
	if f.pinned {
		_ = d.unpin(f.staging) // as above
	}
	wire.Unmap(f.staging)
	f.staging, f.pinned = nil, false
}

// shapeOf returns the shape of a tensor, and nothing for any other value.
func shapeOf(v *ort.Value) shape {
	if !v.IsTensor() {
		return shape{}
	}
	dims := v.Shape()
	return shape{dims: dims, bytes: elements(dims) * int64(models.DataType(v.Elem()).Bytes())}
}

// elements returns the number of elements of a tensor with these dimensions.
func elements(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

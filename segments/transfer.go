package segments

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// directCopyBytes is the size from which a query's part of a gathered input is
// copied to the device from where it lies. Smaller ones are gathered by the
// host first, since a copy of its own costs each of them several microseconds.
const directCopyBytes = 64 << 10

// upload brings the inputs of b to where their sessions want them: each byte is
// copied to the device once. What the host's side of a copy holds must not
// change before the next wait.
func (e *CutModel) upload(b *batch, dims [][]int64, queries []worker.Query) error {
	e.pending = true
	staged := 0
	for i, id := range e.inputs {
		elem := e.model.Inputs[i].Type.Elem
		if e.hostHome[id] || elem.Bytes() == 0 {
			if err := e.hostInput(b, i, dims[i], queries); err != nil {
				return err
			}
			continue
		}
		to, offset, err := e.inputPlace(b, i, dims[i])
		if err != nil {
			return err
		}
		if len(queries) > 1 && len(queries[0].Inputs[i].Data) < directCopyBytes {
			if staged, err = e.gatherUpload(b, staged, to, offset, i, queries); err != nil {
				return err
			}
			continue
		}
		for _, q := range queries {
			if err := e.device.copyIn(to, offset, q.Inputs[i].Data); err != nil {
				return err
			}
			offset += int64(len(q.Inputs[i].Data))
		}
	}
	return nil
}

// hostInput binds an input that stays with the host.
func (e *CutModel) hostInput(b *batch, i int, dims []int64, queries []worker.Query) error {
	if len(queries) == 1 {
		return e.wrapInput(b, i, queries[0].Inputs[i])
	}
	return e.gatherInput(b, i, dims, queries)
}

// inputPlace returns where the i-th input lies on the device: in the frame, or
// in memory of its own while the batch is being learned from.
func (e *CutModel) inputPlace(b *batch, i int, dims []int64) (region, int64, error) {
	id := e.inputs[i]
	if b.frame.values[id] != nil {
		return b.frame.memory, b.frame.offset(id), nil
	}
	elem := e.model.Inputs[i].Type.Elem
	bytes := elements(dims) * int64(elem.Bytes())
	to, err := e.device.alloc(max(bytes, 1))
	if err != nil {
		return region{}, 0, err
	}
	b.regions = append(b.regions, to)
	b.bytes += to.bytes
	b.gathered = b.bytes
	v, err := e.device.tensor(to, 0, bytes, ort.ElementType(elem), dims)
	if err != nil {
		return region{}, 0, err
	}
	b.given = append(b.given, v)
	e.bindInput(b, i, v)
	return to, 0, nil
}

// gatherUpload gathers the i-th input in the frame's staging memory, of which
// so many bytes are taken, and copies it to the device from there.
func (e *CutModel) gatherUpload(b *batch, staged int, to region, offset int64, i int, queries []worker.Query) (int, error) {
	room, err := e.staging(b.frame, queries)
	if err != nil {
		return staged, err
	}
	start := staged
	for _, q := range queries {
		staged += copy(room[staged:], q.Inputs[i].Data)
	}
	e.pending = true // making room may have waited for what was queued
	return staged, e.device.copyIn(to, offset, room[start:staged])
}

// staging returns host memory with room for all inputs of the queries, which
// belongs to the frame.
func (e *CutModel) staging(f *frame, queries []worker.Query) ([]byte, error) {
	bytes := 0
	for _, q := range queries {
		for _, in := range q.Inputs {
			bytes += len(in.Data)
		}
	}
	if len(f.staging) >= bytes && bytes > 0 {
		return f.staging, nil
	}
	memory, err := unix.Mmap(-1, 0, max(bytes, 1), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("memory to gather inputs in (%d bytes): %w", bytes, err)
	}
	if f.staging != nil { // strings are longer than those of the batch before
		if err := e.settle(); err != nil {
			wire.Unmap(memory)
			return nil, err
		}
		f.closeStaging(e.device)
	}
	f.staging = memory
	f.pinned = e.device.pin(memory, false) == nil
	return memory, nil
}

// runFar runs operators [b.next, end) of b on a device that queues them. All
// but the last span of a batch end with a wait; the last one ends when its
// outputs have been copied.
func (b *batch) runFar(e *CutModel, end int, stop *uint32) error {
	e.pending = true
	if err := e.device.begin(); err != nil {
		return err
	}
	for b.next < end {
		if e.waits[b.next] {
			if err := e.device.sync(); err != nil {
				return err
			}
		}
		p := b.next
		reached, err := b.frame.program.Run(e.runOptions, p, p+1, stop)
		if err != nil {
			return err
		}
		if reached == p {
			break
		}
		b.next = reached
		if err := b.launched(e, p); err != nil {
			return err
		}
	}
	if b.next == len(e.cut.pieces) {
		if b.shapes != nil {
			e.learn(b)
		}
		return nil
	}
	return e.endSpan()
}

// launched does what follows the launch of operator p.
func (b *batch) launched(e *CutModel, p int) error {
	switch {
	case b.shapes != nil:
		b.note(e, p)
	case len(b.frame.loose) > 0:
		b.bytes = b.gathered + b.frame.looseBytes()
	}
	if err := b.checkBudget(e); err != nil {
		return err
	}
	return e.device.launched()
}

// endSpan waits for the device and keeps how long it took.
func (e *CutModel) endSpan() (err error) {
	e.deviceTook, err = e.device.end()
	e.pending = err != nil
	return err
}

// settle waits for the device if anything was queued since the last wait.
func (e *CutModel) settle() error {
	if !e.pending {
		return nil
	}
	e.pending = false
	return e.device.sync()
}

// DeviceTime returns how long the device took for the last span, from its first
// operator to its last, or to the last copy of an output: 0 on the CPU.
func (e *CutModel) DeviceTime() time.Duration { return e.deviceTook }

// reader reads outputs, wherever they lie. What is read is there after done.
type reader struct {
	e       *CutModel
	far     bool   // the value that is open lies on the device
	address uint64 // there
	data    []byte // if it lies with the host
	later   []func()
}

// open makes v, the value of id, the one that is read.
func (r *reader) open(v *ort.Value, id int32) (err error) {
	if r.far = r.e.device.far() && !r.e.hostHome[id]; r.far {
		r.address, err = v.Address()
	} else {
		r.data, err = v.Bytes()
	}
	return err
}

// read copies what lies from the offset on to dst.
func (r *reader) read(dst []byte, offset int64) error {
	if r.far {
		return r.e.device.copyOut(dst, r.address+uint64(offset))
	}
	from := r.data[offset : offset+int64(len(dst))]
	if !r.e.device.far() {
		copy(dst, from)
		return nil
	}
	// The device may still be writing it.
	r.later = append(r.later, func() { copy(dst, from) })
	return nil
}

// done waits for what was read.
func (r *reader) done() error {
	if !r.e.device.far() {
		return nil
	}
	if err := r.e.endSpan(); err != nil {
		return err
	}
	for _, f := range r.later {
		f()
	}
	return nil
}

// hostCopy returns a copy of an output in the host's memory, for who wants a
// value of it. The batch closes it.
func (e *CutModel) hostCopy(b *batch, v *ort.Value, id int32) (*ort.Value, error) {
	if v == nil || e.hostHome[id] || !v.IsTensor() || v.Elem() == ort.String {
		return v, nil
	}
	address, err := v.Address()
	if err != nil {
		return nil, err
	}
	near, err := e.env.NewTensor(v.Elem(), v.Shape())
	if err != nil {
		return nil, err
	}
	b.given = append(b.given, near)
	dst, err := near.Bytes()
	if err != nil {
		return nil, err
	}
	return near, e.device.copyOut(dst, address)
}

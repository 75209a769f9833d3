package segments

import (
	"fmt"
	"os"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// directCopyBytes is the size from which a query's part of a gathered input is copied to
// the device directly. The host gathers smaller parts first, because each separate copy
// costs several microseconds.
const directCopyBytes = 64 << 10

// maxPinnedBytes is the largest range that is pinned, because all pages of a pinned range
// stay allocated.
const maxPinnedBytes = 1 << 30

// synchronizeEvery is how often, in runs, a segment that may leave pinned memory behind
// runs synchronously. ONNX Runtime waits for such a run and then releases the pinned
// memory.
const synchronizeEvery = 64

// deviceRun runs a model on a device with memory of its own. It copies inputs and outputs,
// and it queues work instead of completing it immediately. Each span of a batch ends with a
// wait. For the last span that is the wait for the copies of the outputs.
type deviceRun struct {
	*Device
	m *CutModel

	// pending is set if work was queued since the last wait.
	pending bool

	// last is the device time of the last span.
	last time.Duration

	// later holds copies from host memory, to be made after the wait.
	later []func()

	// pins lists the memory that close unpins.
	pins [][]byte

	// runs counts the runs of each piece in each set of sessions.
	runs []int

	// timed describes the span between the two events: its layout, which is nil if the
	// batch has none, and its segments.
	timed struct {
		of       *layout
		from, to int
	}
}

func (r *deviceRun) took() time.Duration { return r.last }

// start copies each byte of the inputs to the device once. The host's side of a copy must
// not change before the next wait.
func (r *deviceRun) start(b *batch, dims [][]int64, queries []worker.Query) error {
	r.pending = true
	staged := 0
	for i, id := range r.m.inputs {
		if !b.reads(&r.m.loaded, id) {
			continue
		}
		if r.m.hostHome[id] || r.m.model.Inputs[i].Type.Elem.Bytes() == 0 {
			if err := r.m.giveInput(b, i, dims[i], queries); err != nil {
				return err
			}
			continue
		}
		to, offset, err := r.inputPlace(b, i, dims[i])
		if err != nil {
			return err
		}
		if len(queries) > 1 && len(queries[0].Inputs[i].Data) < directCopyBytes {
			if staged, err = r.gather(b, staged, to, offset, i, queries); err != nil {
				return err
			}
			continue
		}
		for _, q := range queries {
			if err := r.copyIn(to, offset, q.Inputs[i].Data); err != nil {
				return err
			}
			offset += int64(len(q.Inputs[i].Data))
		}
	}
	return nil
}

// inputPlace returns where the i-th input lies on the device: in the frame, or in separate
// memory while the layout is being learned.
func (r *deviceRun) inputPlace(b *batch, i int, dims []int64) (region, int64, error) {
	id := r.m.inputs[i]
	if b.frame.values[id] != nil {
		return b.frame.memory, b.frame.offset(id), nil
	}
	to, v, err := r.apart(b, r.m.model.Inputs[i].Type.Elem, dims)
	if err == nil {
		b.given = append(b.given, v)
		r.m.bindInput(b, i, v)
	}
	return to, 0, err
}

// apart allocates a tensor in separate memory, which the batch frees.
func (r *deviceRun) apart(b *batch, elem models.DataType, dims []int64) (region, *ort.Value, error) {
	bytes := elements(dims) * int64(elem.Bytes())
	to, err := r.alloc(max(bytes, 1))
	if err != nil {
		return region{}, nil, err
	}
	b.regions = append(b.regions, to)
	b.bytes += to.bytes
	b.gathered = b.bytes
	v, err := r.tensor(to, 0, bytes, elem, dims)
	return to, v, err
}

// place copies a value to the device, or to memory of the host if that is its home.
// Afterwards the batch does not need the memory in which the value arrived.
func (r *deviceRun) place(b *batch, id int32, elem models.DataType, dims []int64, data []byte) (copied bool, err error) {
	if r.m.hostHome[id] {
		v, err := r.m.env.NewTensor(elem, dims)
		if err != nil {
			return true, err
		}
		r.m.adopt(b, id, v)
		dst, err := v.Bytes()
		copy(dst, data)
		return true, err
	}
	if b.frame.values[id] != nil {
		return true, r.copyIn(b.frame.memory, b.frame.offset(id), data)
	}
	to, v, err := r.apart(b, elem, dims)
	if err != nil {
		return true, err
	}
	r.m.adopt(b, id, v)
	return true, r.copyIn(to, 0, data)
}

// gather gathers the i-th input in the frame's staging memory and copies it to the device
// from there. staged is how many bytes of the staging memory are in use; gather returns the
// new number.
func (r *deviceRun) gather(b *batch, staged int, to region, offset int64, i int, queries []worker.Query) (int, error) {
	bytes := 0
	for _, q := range queries {
		for _, in := range q.Inputs {
			bytes += len(in.Data)
		}
	}
	s := &b.frame.staging
	if len(s.data) < bytes || bytes == 0 {
		if s.data != nil { // the strings need more memory than those of the previous batch
			if err := r.settle(); err != nil {
				return staged, err
			}
		}
		if err := s.open(r.Device, max(bytes, 1)); err != nil {
			return staged, err
		}
	}
	start := staged
	for _, q := range queries {
		staged += copy(s.data[staged:], q.Inputs[i].Data)
	}
	r.pending = true // settle may have cleared it
	return staged, r.copyIn(to, offset, s.data[start:staged])
}

func (r *deviceRun) span(b *batch, end int, stop *uint32) error {
	r.pending = true
	r.timed.of, r.timed.from = nil, b.next
	if err := r.begin(); err != nil {
		return err
	}
	graphs, err := r.mayCapture(b)
	if err != nil {
		return err
	}
	for b.next < end {
		p := b.next
		if r.m.waits[p] {
			if err := r.sync(); err != nil {
				return err
			}
		}
		b.frame.program.Synchronize(r.synchronizes(r.m.setOf(b.size), p))
		b.frame.program.Graphs(graphs && b.frame.fixed[p])
		reached, err := b.frame.program.Run(p, p+1, stop)
		if err != nil {
			return captureFault(b.frame.program.HasGraphs(), err)
		}
		if reached == p {
			break
		}
		b.next = reached
		if b.shapes != nil {
			b.taught(&r.m.loaded, p, 0)
		} else {
			b.grew()
		}
		if err := r.m.check(b); err != nil {
			return err
		}
		if err := r.follow(b.frame.layout.takes(p)); err != nil {
			return err
		}
	}
	r.timed.of, r.timed.to = b.frame.layout, b.next
	if b.next < len(r.m.cut.pieces) {
		return r.endSpan()
	}
	if b.shapes != nil {
		r.m.learned(b)
	}
	return nil
}

// synchronizes counts a run of piece p and reports whether it must run synchronously. The
// piece number shifts the turn, so that a batch does not wait for all pieces.
func (r *deviceRun) synchronizes(set, p int) bool {
	pieces := len(r.m.cut.pieces)
	if r.runs == nil {
		r.runs = make([]int, pieces*(1+len(r.m.more)))
	}
	runs := &r.runs[set*pieces+p]
	*runs++
	return r.m.cut.pieces[p].pins && (*runs+p)%synchronizeEvery == 0
}

// endSpan waits for the device and records how long the span took.
func (r *deviceRun) endSpan() (err error) {
	r.last, err = r.end()
	r.pending = err != nil
	if err == nil && r.timed.of != nil {
		r.timed.of.took(r.timed.from, r.timed.to, r.last)
	}
	return err
}

func (r *deviceRun) settle() error {
	if !r.pending {
		return nil
	}
	r.pending = false
	return r.sync()
}

func (r *deviceRun) open(v *ort.Value, id int32) (from source, err error) {
	if r.m.hostHome[id] {
		from.data, err = v.Bytes()
	} else {
		from.address, err = v.Address()
	}
	return from, err
}

func (r *deviceRun) read(dst []byte, from source) error {
	if len(dst) == 0 {
		return nil
	}
	if from.data == nil {
		return r.copyOut(dst, from.address)
	}
	// The device may still be writing the value.
	r.later = append(r.later, func() { copy(dst, from.data) })
	return nil
}

func (r *deviceRun) collect() error {
	later := r.later
	r.later = nil
	if err := r.endSpan(); err != nil {
		return err
	}
	for _, f := range later {
		f()
	}
	return nil
}

func (r *deviceRun) hosted(b *batch, v *ort.Value, id int32) (*ort.Value, error) {
	if v == nil || r.m.hostHome[id] || !v.IsTensor() || v.Elem() == models.String {
		return v, nil
	}
	address, err := v.Address()
	if err != nil {
		return nil, err
	}
	near, err := r.m.env.NewTensor(v.Elem(), v.Shape())
	if err != nil {
		return nil, err
	}
	b.given = append(b.given, near)
	dst, err := near.Bytes()
	if err != nil {
		return nil, err
	}
	return near, r.copyOut(dst, address)
}

func (r *deviceRun) pin(memory []byte) error {
	if len(memory) == 0 {
		return nil
	}
	if int64(len(memory)) > maxPinnedBytes {
		return fmt.Errorf("%d bytes of shared memory are not pinned, because the limit is %d: copies to the GPU are slower", len(memory), int64(maxPinnedBytes))
	}
	if err := r.context.Pin(memory); err != nil {
		return fmt.Errorf("shared memory cannot be pinned, copies to the GPU are slower: %w", err)
	}
	r.pins = append(r.pins, memory)
	return nil
}

func (r *deviceRun) close() {
	for _, memory := range r.pins {
		if err := r.context.Unpin(memory); err != nil {
			fmt.Fprintln(os.Stderr, "shared memory stays pinned:", err)
		}
	}
	r.pins = nil
}

// staging is memory of the host in which small inputs are gathered before they are copied.
type staging struct {
	data []byte

	// pinnedBy is nil if the memory could not be pinned.
	pinnedBy *Device
}

// open replaces the memory by at least the given number of bytes. No queued work may still
// use the old memory.
func (s *staging) open(d *Device, bytes int) error {
	memory, err := hostMemory(int64(bytes), "for gathering inputs")
	if err != nil {
		return err
	}
	s.close()
	s.data = memory
	if d.context.Pin(memory) == nil {
		s.pinnedBy = d
	}
	return nil
}

// close unpins and frees the memory.
func (s *staging) close() {
	if s.pinnedBy != nil {
		_ = s.pinnedBy.context.Unpin(s.data) // an error means that the device is lost, and the pin with it
	}
	wire.Unmap(s.data)
	*s = staging{}
}

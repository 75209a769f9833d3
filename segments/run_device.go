package segments

import (
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
)

// synchronizeEvery is how often, in runs, a segment that may leave pinned memory behind
// runs synchronously. ONNX Runtime waits for such a run and then releases the pinned
// memory.
const synchronizeEvery = 64

// deviceRun runs a model on a device with memory of its own. It copies inputs and outputs,
// and it queues work instead of completing it immediately. Each span of a batch ends with a
// wait. For the last span that is the wait for the copies of the outputs.
type deviceRun struct {
	m      *CutModel
	device *gpu.Device

	// runs counts the runs of each piece in each set of sessions.
	runs []int

	// parts is reused for the parts of each input.
	parts [][]byte

	// timed describes the last span: its layout, which is nil if the batch has none, and its
	// segments.
	timed struct {
		of       *layout
		from, to int
	}
}

func (r *deviceRun) took() time.Duration { return r.device.Took() }
func (r *deviceRun) settle() error       { return r.device.Settle() }

// start copies each byte of the inputs to the device once. The host's side of a copy must
// not change before the next wait.
func (r *deviceRun) start(b *batch, dims [][]int64, queries []wire.QueryTensors) error {
	for i, id := range r.m.loaded.inputs {
		if !b.reads(r.m.loaded, id) {
			continue
		}
		if r.m.loaded.hostHome[id] || r.m.loaded.model.Inputs[i].Type.Elem.Bytes() == 0 {
			if err := r.m.loaded.giveInput(b, i, dims[i], queries); err != nil {
				return err
			}
			continue
		}
		to, err := r.inputPlace(b, i, dims[i])
		if err != nil {
			return err
		}
		r.parts = r.parts[:0]
		for _, q := range queries {
			r.parts = append(r.parts, q.Inputs[i].Data)
		}
		if err := r.device.CopyIn(to, r.parts...); err != nil {
			return err
		}
	}
	return nil
}

// inputPlace returns where the i-th input lies on the device: in the frame, or in separate
// memory while the layout is being learned.
func (r *deviceRun) inputPlace(b *batch, i int, dims []int64) (uint64, error) {
	id := r.m.loaded.inputs[i]
	if b.frame.values[id] != nil {
		return b.frame.address(id), nil
	}
	to, v, err := r.apart(b, r.m.loaded.model.Inputs[i].Type.Elem, dims)
	if err == nil {
		b.given = append(b.given, v)
		r.m.loaded.bindInput(b, i, v)
	}
	return to, err
}

// apart allocates a tensor in separate memory, which the batch frees.
func (r *deviceRun) apart(b *batch, elem models.DataType, dims []int64) (uint64, *ort.Value, error) {
	bytes := elements(dims) * int64(elem.Bytes())
	to, err := r.m.loaded.device.alloc(max(bytes, 1))
	if err != nil {
		return 0, nil, err
	}
	b.regions = append(b.regions, to)
	b.bytes += to.bytes
	b.gathered = b.bytes
	v, err := r.m.loaded.device.tensor(to, 0, bytes, elem, dims)
	return to.address, v, err
}

// place copies a value to the device, or to memory of the host if that is its home.
// Afterwards the batch does not need the memory in which the value arrived.
func (r *deviceRun) place(b *batch, id int32, elem models.DataType, dims []int64, data []byte) (copied bool, err error) {
	if r.m.loaded.hostHome[id] {
		v, err := r.m.loaded.env.NewTensor(elem, dims)
		if err != nil {
			return true, err
		}
		r.m.loaded.adopt(b, id, v)
		dst, err := v.Bytes()
		copy(dst, data)
		return true, err
	}
	if b.frame.values[id] != nil {
		return true, r.device.CopyIn(b.frame.address(id), data)
	}
	to, v, err := r.apart(b, elem, dims)
	if err != nil {
		return true, err
	}
	r.m.loaded.adopt(b, id, v)
	return true, r.device.CopyIn(to, data)
}

func (r *deviceRun) span(b *batch, end int, stop *uint32) error {
	r.timed.of, r.timed.from = nil, b.next
	if err := r.device.Begin(); err != nil {
		return err
	}
	graphs, err := r.mayCapture(b)
	if err != nil {
		return err
	}
	for b.next < end {
		p := b.next
		if r.m.loaded.waits[p] {
			if err := r.device.Sync(); err != nil {
				return err
			}
		}
		b.frame.program.Synchronize(r.synchronizes(r.m.loaded.setOf(b.size), p))
		b.frame.program.Graphs(graphs && b.frame.captures.fixed[p])
		reached, err := b.frame.program.Run(p, p+1, stop)
		if err != nil {
			return captureFault(b.frame.program.HasGraphs(), err)
		}
		if reached == p {
			break
		}
		b.next = reached
		if b.shapes != nil {
			b.taught(r.m.loaded, p, 0)
		} else {
			b.grew()
		}
		if err := r.m.pool.check(b); err != nil {
			return err
		}
		if err := r.device.Launched(b.frame.layout.takes(p)); err != nil {
			return err
		}
	}
	r.timed.of, r.timed.to = b.frame.layout, b.next
	if b.next < len(r.m.loaded.cut.pieces) {
		return r.collect()
	}
	if b.shapes != nil {
		r.m.learned(b)
	}
	return nil
}

// synchronizes counts a run of piece p and reports whether it must run synchronously. The
// piece number shifts the turn, so that a batch does not wait for all pieces.
func (r *deviceRun) synchronizes(set, p int) bool {
	pieces := len(r.m.loaded.cut.pieces)
	if r.runs == nil {
		r.runs = make([]int, pieces*(1+len(r.m.loaded.more)))
	}
	runs := &r.runs[set*pieces+p]
	*runs++
	return r.m.loaded.cut.pieces[p].pins && (*runs+p)%synchronizeEvery == 0
}

// collect waits for the device and records how long the span took.
func (r *deviceRun) collect() error {
	err := r.device.End()
	if err == nil && r.timed.of != nil {
		r.timed.of.took(r.timed.from, r.timed.to, r.took())
	}
	return err
}

func (r *deviceRun) open(v *ort.Value, id int32) (from source, err error) {
	if r.m.loaded.hostHome[id] {
		from.data, err = v.Bytes()
	} else {
		from.address, err = v.Address()
	}
	return from, err
}

func (r *deviceRun) read(dst []byte, from source) (source, error) {
	if len(dst) == 0 {
		return from, nil
	}
	if from.data == nil {
		return source{address: from.address + uint64(len(dst))}, r.device.CopyOut(dst, from.address)
	}
	r.device.CopyHost(dst, from.data)
	return source{data: from.data[len(dst):]}, nil
}

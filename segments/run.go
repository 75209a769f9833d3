package segments

import (
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// runner runs the batches of a model on the CPU or on a GPU.
type runner interface {
	// start brings the inputs of the queries to the memory in which the sessions expect
	// them. dims are the shapes of the batch's inputs.
	start(b *batch, dims [][]int64, queries []wire.QueryTensors) error

	// place brings a value with the given bytes to the memory in which the sessions that
	// read it expect it. It reports whether data was copied and may change afterwards.
	place(b *batch, id int32, elem models.DataType, dims []int64, data []byte) (copied bool, err error)

	// span runs operators [b.next, end). It stops early at an operator boundary once *stop
	// is not zero.
	span(b *batch, end int, stop *uint32) error

	// open returns where v lies, which is the value id. read copies from there to dst, and
	// returns where the rest lies. The copied bytes are valid after collect.
	open(v *ort.Value, id int32) (source, error)
	read(dst []byte, from source) (source, error)
	collect() error

	// settle waits for all queued work.
	settle() error

	// took returns the time of the last span as measured by the device, or 0 if the device
	// has no clock.
	took() time.Duration
}

// source is the remaining part of a value that is being read: bytes on the host, or an
// address on the device.
type source struct {
	data    []byte
	address uint64
}

// hostRun runs a model on the CPU. It completes all work immediately and uses the inputs of
// single queries in place.
type hostRun struct{ m *CutModel }

func (r *hostRun) collect() error      { return nil }
func (r *hostRun) settle() error       { return nil }
func (r *hostRun) took() time.Duration { return 0 }

func (r *hostRun) start(b *batch, dims [][]int64, queries []wire.QueryTensors) error {
	return r.m.pool.bounded(b, func() error { return r.giveInputs(b, dims, queries) })
}

// giveInputs sets the inputs that the batch reads. Inputs of several queries are gathered
// in the frame, or in memory of ONNX Runtime if the frame has no place for them.
func (r *hostRun) giveInputs(b *batch, dims [][]int64, queries []wire.QueryTensors) error {
	for i, id := range r.m.loaded.inputs {
		if !b.reads(r.m.loaded, id) {
			continue
		}
		if len(queries) > 1 && b.frame.values[id] != nil {
			at := b.frame.offset(id)
			gather(b.frame.memory.host[at:], i, queries)
			continue
		}
		if err := r.m.loaded.giveInput(b, i, dims[i], queries); err != nil {
			return err
		}
	}
	return nil
}

func (r *hostRun) place(b *batch, id int32, elem models.DataType, dims []int64, data []byte) (bool, error) {
	v, err := r.m.loaded.env.TensorOn(data, elem, dims)
	if err == nil {
		r.m.loaded.adopt(b, id, v)
	}
	return false, err
}

func (r *hostRun) span(b *batch, end int, stop *uint32) error {
	l := r.m.loaded
	set, k := l.shares.take(l, b.units)
	defer l.shares.give(k, set)
	if err := b.frame.program.Use(set); err != nil {
		return err
	}
	return r.m.pool.bounded(b, func() (err error) {
		if b.shapes != nil {
			return r.learn(b, end, stop)
		}
		b.next, err = r.operators(b, end, stop)
		return err
	})
}

// operators runs operators [b.next, end) while other goroutines use the model.
func (r *hostRun) operators(b *batch, end int, stop *uint32) (reached int, err error) {
	r.m.mu.Unlock()
	defer r.m.mu.Lock()
	return b.frame.program.Run(b.next, end, stop)
}

// learn is span for a batch whose layout is not known yet. It runs one operator at a time
// and records the shapes of the outputs.
func (r *hostRun) learn(b *batch, end int, stop *uint32) error {
	env := r.m.loaded.env
	others := env.ThreadBytes() - b.bytes
	for b.next < end {
		p := b.next
		peak := env.ThreadPeak()
		reached, err := r.operators(b, p+1, stop)
		if err != nil || reached == p {
			return err
		}
		b.next = reached
		b.taught(r.m.loaded, p, peak()-others)
	}
	if b.next == len(r.m.loaded.cut.pieces) {
		r.m.learned(b)
	}
	return nil
}

func (r *hostRun) open(v *ort.Value, _ int32) (source, error) {
	data, err := v.Bytes()
	return source{data: data}, err
}

func (r *hostRun) read(dst []byte, from source) (source, error) {
	return source{data: from.data[copy(dst, from.data):]}, nil
}

// giveInput creates a value on the host for the i-th input of b. The tensor of a single
// query is used in place; those of several are gathered in memory of ONNX Runtime.
func (m *loaded) giveInput(b *batch, i int, dims []int64, queries []wire.QueryTensors) error {
	in := &queries[0].Inputs[i]
	var v *ort.Value
	var err error
	switch {
	case in.Type == models.String:
		v, err = m.stringInput(i, dims, queries)
	case len(queries) == 1:
		v, err = m.env.TensorOn(in.Data, in.Type, in.Shape)
	default:
		v, err = m.env.NewTensor(in.Type, dims)
	}
	if err != nil {
		return err
	}
	b.given = append(b.given, v)
	m.bindInput(b, i, v)
	if in.Type == models.String || len(queries) == 1 {
		return nil
	}
	dst, err := v.Bytes()
	if err != nil {
		return err
	}
	b.bytes += int64(len(dst))
	b.gathered = b.bytes
	gather(dst, i, queries)
	return nil
}

// stringInput creates a tensor from the i-th inputs of the queries, which are strings.
func (m *loaded) stringInput(i int, dims []int64, queries []wire.QueryTensors) (*ort.Value, error) {
	var list [][]byte
	for _, q := range queries {
		part, err := parseStrings(q.Inputs[i].Data, elements(q.Inputs[i].Shape))
		if err != nil {
			return nil, err
		}
		list = append(list, part...)
	}
	return m.env.StringTensor(list, dims)
}

// gather copies the i-th inputs of the queries to dst, one after another.
func gather(dst []byte, i int, queries []wire.QueryTensors) {
	for _, q := range queries {
		dst = dst[copy(dst, q.Inputs[i].Data):]
	}
}

// bindInput makes v the i-th input of the model. It also excludes the segments that read it
// from CUDA graphs, because v does not lie in the frame.
func (m *loaded) bindInput(b *batch, i int, v *ort.Value) {
	for _, u := range m.uses[i] {
		b.frame.program.SetInput(u.piece, u.pos, v)
		b.frame.captures.forget(u.piece)
	}
}

// gather checks the queries against the model and against each other. It returns the shapes
// of the batch's inputs, and the size of each query: the batch dimension of the first input
// that has one, or 1 if no input has.
func (m *loaded) gather(queries []wire.QueryTensors) (dims [][]int64, sizes []int, err error) {
	if len(queries) == 0 {
		return nil, nil, fmt.Errorf("%w: a batch without queries", wire.ErrInput)
	}
	dims, sizes = make([][]int64, len(m.inputs)), make([]int, len(queries))
	sized := slices.Index(m.batchDims, 0)
	for n, q := range queries {
		if len(q.Inputs) != len(m.inputs) {
			return nil, nil, fmt.Errorf("%w: %d inputs given, but the model has %d", wire.ErrInput, len(q.Inputs), len(m.inputs))
		}
		for i, in := range q.Inputs {
			if err := m.checkInput(i, in); err != nil {
				return nil, nil, err
			}
			if n == 0 {
				dims[i] = append([]int64(nil), in.Shape...)
				continue
			}
			if m.batchDims[i] != 0 {
				return nil, nil, fmt.Errorf("%w: input %q has no batch dimension, so %d queries cannot run as one batch",
					wire.ErrInput, m.model.Inputs[i].Name, len(queries))
			}
			if !slices.Equal(dims[i][1:], in.Shape[1:]) {
				return nil, nil, fmt.Errorf("%w: input %q has shape %v in one query and %v in another of the same batch",
					wire.ErrInput, m.model.Inputs[i].Name, dims[i], in.Shape)
			}
			dims[i][0] += in.Shape[0]
		}
		sizes[n] = 1
		if sized >= 0 {
			sizes[n] = int(q.Inputs[sized].Shape[0])
		}
	}
	return dims, sizes, nil
}

// checkInput returns an error if a tensor is not valid for the model's i-th input.
func (m *loaded) checkInput(i int, in models.Tensor) error {
	spec := &m.model.Inputs[i]
	if in.Type != spec.Type.Elem {
		return fmt.Errorf("%w: input %q is %s, the model takes %s", wire.ErrInput, spec.Name, in.Type, spec.Type.Elem)
	}
	if spec.Type.HasShape && len(in.Shape) != len(spec.Type.Shape) {
		return fmt.Errorf("%w: input %q has rank %d, the model takes %d", wire.ErrInput, spec.Name, len(in.Shape), len(spec.Type.Shape))
	}
	for j, d := range in.Shape {
		if spec.Type.HasShape && spec.Type.Shape[j].Fixed() && spec.Type.Shape[j].Value != d {
			return fmt.Errorf("%w: input %q has shape %v, the model takes %s", wire.ErrInput, spec.Name, in.Shape, spec.Type)
		}
	}
	n, ok := models.Elements(in.Shape)
	if !ok {
		return fmt.Errorf("%w: input %q has the invalid shape %v", wire.ErrInput, spec.Name, in.Shape)
	}
	if size := int64(in.Type.Bytes()); size > 0 && n*size != int64(len(in.Data)) {
		return fmt.Errorf("%w: input %q of shape %v has %d bytes instead of %d", wire.ErrInput, spec.Name, in.Shape, len(in.Data), n*size)
	}
	return nil
}

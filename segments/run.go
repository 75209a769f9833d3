package segments

import (
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// runner runs the batches of a model where its intermediates lie.
type runner interface {
	// start brings the inputs of the queries to where their sessions want them.
	// Dims are the shapes of the batch's inputs.
	start(b *batch, dims [][]int64, queries []worker.Query) error

	// place puts a value, of which data are the bytes, where the sessions that read it
	// want it. It reports whether data may change then.
	place(b *batch, id int32, elem models.DataType, dims []int64, data []byte) (copied bool, err error)

	// span runs operators [b.next, end) and stops early at an operator boundary
	// once *stop is not zero.
	span(b *batch, end int, stop *uint32) error

	// open returns where v lies, the value of id, and read copies from there. What
	// was read is there after collect.
	open(v *ort.Value, id int32) (source, error)
	read(dst []byte, from source) error
	collect() error

	// hosted returns v, the value of id, or a copy of it that the host sees after
	// collect. The batch closes it.
	hosted(b *batch, v *ort.Value, id int32) (*ort.Value, error)

	// settle waits for whatever is queued.
	settle() error

	// took returns the time of the last span by the device's own clock, 0 if it
	// has none.
	took() time.Duration

	// pin keeps memory in place until close, so that it is copied faster.
	pin(memory []byte) error
	close()
}

// source is the rest of a value that is being read: bytes of the host, or an
// address of the device.
type source struct {
	data    []byte
	address uint64
}

// skip returns what follows after n bytes.
func (s source) skip(n int64) source {
	if s.data != nil {
		return source{data: s.data[n:]}
	}
	return source{address: s.address + uint64(n)}
}

// hostRun runs a model on the processor of this machine, where everything is done
// at once and inputs are used where they lie.
type hostRun struct{ m *CutModel }

func (r *hostRun) collect() error      { return nil }
func (r *hostRun) settle() error       { return nil }
func (r *hostRun) took() time.Duration { return 0 }
func (r *hostRun) pin([]byte) error    { return nil }
func (r *hostRun) close()              {}

func (r *hostRun) start(b *batch, dims [][]int64, queries []worker.Query) error {
	return r.m.bounded(b, func() error { return r.giveInputs(b, dims, queries) })
}

func (r *hostRun) giveInputs(b *batch, dims [][]int64, queries []worker.Query) error {
	for i, id := range r.m.inputs {
		if !b.reads(&r.m.loaded, id) {
			continue
		}
		if len(queries) > 1 && b.frame.values[id] != nil {
			at := b.frame.offset(id)
			gather(b.frame.memory.host[at:], i, queries)
			continue
		}
		if err := r.m.giveInput(b, i, dims[i], queries); err != nil {
			return err
		}
	}
	return nil
}

func (r *hostRun) place(b *batch, id int32, elem models.DataType, dims []int64, data []byte) (bool, error) {
	v, err := r.m.env.TensorOn(data, elem, dims)
	if err == nil {
		r.m.adopt(b, id, v)
	}
	return false, err
}

func (r *hostRun) span(b *batch, end int, stop *uint32) error {
	b.frame.program.OneThread(r.m.one)
	return r.m.bounded(b, func() (err error) {
		if b.shapes != nil {
			return r.learn(b, end, stop)
		}
		b.next, err = b.frame.program.Run(b.next, end, stop)
		return err
	})
}

// learn is span with a look at the shape of every value on the way.
func (r *hostRun) learn(b *batch, end int, stop *uint32) error {
	env := r.m.env
	others := env.ArenaBytes() - b.bytes
	for b.next < end {
		p := b.next
		peak := env.ArenaPeak()
		reached, err := b.frame.program.Run(p, p+1, stop)
		if err != nil || reached == p {
			return err
		}
		b.next = reached
		b.taught(&r.m.loaded, p, peak()-others)
	}
	if b.next == len(r.m.cut.pieces) {
		r.m.learned(b)
	}
	return nil
}

func (r *hostRun) open(v *ort.Value, _ int32) (source, error) {
	data, err := v.Bytes()
	return source{data: data}, err
}

func (r *hostRun) read(dst []byte, from source) error {
	copy(dst, from.data)
	return nil
}

func (r *hostRun) hosted(_ *batch, v *ort.Value, _ int32) (*ort.Value, error) { return v, nil }

// giveInput makes the i-th input of b a value of the host: the tensor of a single
// query where it lies, those of several gathered in memory of ONNX Runtime's.
func (m *loaded) giveInput(b *batch, i int, dims []int64, queries []worker.Query) error {
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

func (m *loaded) stringInput(i int, dims []int64, queries []worker.Query) (*ort.Value, error) {
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

// gather copies the i-th inputs of the queries behind each other.
func gather(dst []byte, i int, queries []worker.Query) {
	for _, q := range queries {
		dst = dst[copy(dst, q.Inputs[i].Data):]
	}
}

// bindInput makes v the i-th input of the model.
func (m *loaded) bindInput(b *batch, i int, v *ort.Value) {
	for _, u := range m.uses[i] {
		b.frame.program.SetInput(u.piece, u.pos, v)
		b.frame.forget(u.piece)
	}
}

// batchSizes returns the size of each query: the batch dimension of its first
// input that has one, 1 if none has.
func (m *loaded) batchSizes(queries []worker.Query) []int {
	sizes := make([]int, len(queries))
	for n := range queries {
		sizes[n] = 1
		if i := slices.Index(m.batchDims, 0); i >= 0 {
			sizes[n] = int(queries[n].Inputs[i].Shape[0])
		}
	}
	return sizes
}

// gatherDims checks the queries against the model and each other, and returns
// the shapes of the batch's inputs.
func (m *loaded) gatherDims(queries []worker.Query) ([][]int64, error) {
	if len(queries) == 0 {
		return nil, fmt.Errorf("%w: a batch without queries", wire.ErrInput)
	}
	dims := make([][]int64, len(m.inputs))
	for n, q := range queries {
		if len(q.Inputs) != len(m.inputs) {
			return nil, fmt.Errorf("%w: %d inputs given, but the model has %d", wire.ErrInput, len(q.Inputs), len(m.inputs))
		}
		for i, in := range q.Inputs {
			if err := m.checkInput(i, in); err != nil {
				return nil, err
			}
			if n == 0 {
				dims[i] = append([]int64(nil), in.Shape...)
				continue
			}
			if m.batchDims[i] != 0 {
				return nil, fmt.Errorf("%w: input %q has no batch dimension, so %d queries cannot run as one batch",
					wire.ErrInput, m.model.Inputs[i].Name, len(queries))
			}
			if !slices.Equal(dims[i][1:], in.Shape[1:]) {
				return nil, fmt.Errorf("%w: input %q has shape %v in one query and %v in another of the same batch",
					wire.ErrInput, m.model.Inputs[i].Name, dims[i], in.Shape)
			}
			dims[i][0] += in.Shape[0]
		}
	}
	return dims, nil
}

// checkInput refuses a tensor that is not what the model's i-th input takes.
func (m *loaded) checkInput(i int, in worker.Tensor) error {
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

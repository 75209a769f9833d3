package segments

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// openEnv returns an Env that is closed, and checked for leaks, after the
// test. Without the library the test is skipped.
func openEnv(t testing.TB) *ort.Env {
	t.Helper()
	return openEnvWith(t, ort.EnvOptions{IntraThreads: 1})
}

func openEnvWith(t testing.TB, o ort.EnvOptions) *ort.Env {
	t.Helper()
	path, err := ort.Find()
	if errors.Is(err, ort.ErrNotFound) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	lib, err := ort.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	env, err := lib.NewEnv(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := env.Close(); err != nil {
			t.Error(err)
		}
	})
	return env
}

// openCut opens a model cut at every node that is closed after the test.
func openCut(t testing.TB, env *ort.Env, c Config) *CutModel {
	t.Helper()
	if c.CacheDir == "" {
		c.CacheDir = t.TempDir()
	}
	m, err := OpenModel(env, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeCut(t, m) })
	return m
}

type failer interface {
	Helper()
	Errorf(format string, args ...any)
}

// closeCut closes a model and verifies that no memory is held any more.
func closeCut(t failer, m *CutModel) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Errorf("%v", err)
	}
	if n := m.IntermediateBytes(); n != 0 {
		t.Errorf("%d bytes of intermediates after Close", n)
	}
	if len(m.pool.batches) != 0 || len(m.pool.idle) != 0 {
		t.Errorf("%d batches and %d idle frames after Close", len(m.pool.batches), len(m.pool.idle))
	}
}

func openZoo(t testing.TB, name string) string {
	t.Helper()
	path, err := zoo.Build(name, t.TempDir(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// frozen returns memory that holds data and must not be written to.
func frozen(t failer, data []byte) []byte {
	t.Helper()
	if len(data) == 0 {
		return nil
	}
	m, err := unix.Mmap(-1, 0, len(data), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		panic(err)
	}
	copy(m, data)
	if err := unix.Mprotect(m, unix.PROT_READ); err != nil {
		t.Errorf("%v", err)
	}
	return m
}

func thaw(q wire.QueryTensors) {
	for _, in := range q.Inputs {
		if in.Data != nil {
			unix.Munmap(in.Data)
		}
	}
}

// query is made of tensors in frozen memory. Call thaw at its end.
func query(t failer, views ...models.Tensor) wire.QueryTensors {
	t.Helper()
	q := wire.QueryTensors{Inputs: slices.Clone(views)}
	for i := range q.Inputs {
		q.Inputs[i].Data = frozen(t, q.Inputs[i].Data)
	}
	return q
}

// floatView is a tensor of floats.
func floatView(shape []int64, values ...float32) models.Tensor {
	return models.Tensor{Type: models.Float32, Shape: shape, Data: floatBytes(values...)}
}

// randomQuery makes up a query of the given batch size and sequence length.
func randomQuery(t failer, m *models.Model, size, seqLen int64, r *rand.Rand) wire.QueryTensors {
	t.Helper()
	dims := models.BatchDims(m.Inputs)
	var views []models.Tensor
	for i, in := range m.Inputs {
		view := models.Tensor{Type: in.Type.Elem}
		for j, d := range in.Type.Shape {
			switch {
			case d.Fixed():
				view.Shape = append(view.Shape, d.Value)
			case j == dims.Batch[i]:
				view.Shape = append(view.Shape, size)
			default:
				view.Shape = append(view.Shape, seqLen)
			}
		}
		view.Data = randomData(view, r)
		views = append(views, view)
	}
	return query(t, views...)
}

// randomData makes floats between 1 and 2, or small integers.
func randomData(v models.Tensor, r *rand.Rand) []byte {
	data := make([]byte, 0, elements(v.Shape)*int64(v.Type.Bytes()))
	for range elements(v.Shape) {
		switch v.Type {
		case models.Float32:
			data = append(data, floatBytes(r.Float32()-0.5)...)
		case models.Float16:
			data = append(data, byte(r.Uint32()), 0x30|byte(r.UintN(8)))
		default:
			data = append(append(data, byte(r.UintN(2))), make([]byte, v.Type.Bytes()-1)...)
		}
	}
	return data
}

// output is a tensor that came out of a model.
type output struct {
	elem  models.DataType
	shape []int64
	data  []byte
}

func (o output) equal(other output) bool {
	return o.elem == other.elem && slices.Equal(o.shape, other.shape) && bytes.Equal(o.data, other.data)
}

// collect is an OutputFunc that keeps the outputs by query.
type collect [][]output

func (c *collect) take(query, index int, elem models.DataType, shape []int64, bytes int64) ([]byte, error) {
	for len(*c) <= query {
		*c = append(*c, nil)
	}
	if len((*c)[query]) != index {
		return nil, fmt.Errorf("output %d of query %d asked for after %d", index, query, len((*c)[query]))
	}
	o := output{elem: elem, shape: slices.Clone(shape), data: make([]byte, bytes)}
	(*c)[query] = append((*c)[query], o)
	return o.data, nil
}

// whole is a whole model, run by ONNX Runtime itself.
type whole struct {
	env     *ort.Env
	session *ort.Session
}

func openWhole(t testing.TB, env *ort.Env, path string) *whole {
	t.Helper()
	s, err := env.NewSessionFromFile(path, ort.SessionOptions{Optimize: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &whole{env, s}
}

// run runs queries as one batch and splits the outputs among them.
func (w *whole) run(queries []wire.QueryTensors) (collect, error) {
	inputs := make([]*ort.Value, len(queries[0].Inputs))
	defer func() {
		for _, v := range inputs {
			if v != nil {
				v.Close()
			}
		}
	}()
	for i := range inputs {
		view := joined(queries, i)
		v, err := w.env.NewTensor(view.Type, view.Shape)
		if err != nil {
			return nil, err
		}
		inputs[i] = v
		data, err := v.Bytes()
		if err != nil {
			return nil, err
		}
		copy(data, view.Data)
	}
	outputs, err := w.session.Run(inputs, nil)
	if err != nil {
		return nil, err
	}
	parts := make(collect, len(queries))
	for _, v := range outputs {
		data, err := v.Bytes()
		if err != nil {
			return nil, err
		}
		split(parts, queries, output{v.Elem(), v.Shape(), data})
		v.Close()
	}
	return parts, nil
}

// joined returns the i-th input of all queries behind each other.
func joined(queries []wire.QueryTensors, i int) models.Tensor {
	view := queries[0].Inputs[i]
	view.Shape = slices.Clone(view.Shape)
	view.Data = nil
	for n, q := range queries {
		if n > 0 {
			view.Shape[0] += q.Inputs[i].Shape[0]
		}
		view.Data = append(view.Data, q.Inputs[i].Data...)
	}
	return view
}

func split(parts collect, queries []wire.QueryTensors, o output) {
	for n, q := range queries {
		part := output{o.elem, slices.Clone(o.shape), nil}
		size := len(o.data)
		if len(queries) > 1 {
			part.shape[0] = q.Inputs[0].Shape[0]
			size = int(elements(part.shape)) * o.elem.Bytes()
		}
		part.data = bytes.Clone(o.data[:size])
		o.data = o.data[size:]
		parts[n] = append(parts[n], part)
	}
}

// runAll runs a batch from start to end.
func runAll(m *CutModel, id models.BatchID, queries ...wire.QueryTensors) (collect, error) {
	return runShare(m, id, 0, queries...)
}

// runShare is runAll on a share of the units.
func runShare(m *CutModel, id models.BatchID, share int, queries ...wire.QueryTensors) (collect, error) {
	if err := m.Start(id, queries); err != nil {
		return nil, err
	}
	defer m.Release(id)
	if _, err := m.RunShare(id, 0, len(m.loaded.sessions), share, nil); err != nil {
		return nil, err
	}
	var got collect
	err := m.Finish(id, got.take)
	return got, err
}

// compare returns an error where two sets of outputs differ.
func compare(got, want collect) error {
	if len(got) != len(want) {
		return fmt.Errorf("outputs of %d queries, expected %d", len(got), len(want))
	}
	for q := range got {
		if len(got[q]) != len(want[q]) {
			return fmt.Errorf("query %d has %d outputs, expected %d", q, len(got[q]), len(want[q]))
		}
		for i, o := range got[q] {
			if w := want[q][i]; !o.equal(w) {
				return fmt.Errorf("output %d of query %d is %s%v %x…, expected %s%v %x…",
					i, q, o.elem, o.shape, o.data[:min(16, len(o.data))], w.elem, w.shape, w.data[:min(16, len(w.data))])
			}
		}
	}
	return nil
}

package http

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
)

// patience bounds every wait: only what hangs gets there.
const patience = 10 * time.Second

// memoryBytes is the largest query the fake has memory for.
const memoryBytes = 32 << 20

// backend is a query.Backend, and a query.Host, whose services add and subtract ("simple") or return what
// they get (the others). It answers within Submit unless Hold is set.
type backend struct {
	t       testing.TB
	List    []*query.Service
	Dead    atomic.Bool
	Unready atomic.Pointer[query.Error]
	Hold    atomic.Bool            // submitted calls wait for an answer
	Refuse  atomic.Pointer[error]  // what Submit fails with
	Output  atomic.Pointer[[]byte] // what every output holds instead

	Mu struct {
		sync.Mutex
		Held      []*query.Call
		Out       int // pieces of memory that are out
		Cancelled int
		Released  int
		Last      query.Call // the call submitted last, tensors copied
		Largest   int64
	}
}

func dims(values ...int64) []models.Dim {
	d := make([]models.Dim, len(values))
	for i, v := range values {
		d[i].Value = v
		if v < -1 {
			d[i] = models.Dim{Value: -1, Name: fmt.Sprintf("n%d", -v)}
		}
	}
	return d
}

// spec describes an input or output. A dimension of less than -1 has a name.
func spec(name string, t models.DataType, shape ...int64) models.TensorSpec {
	return models.TensorSpec{Name: name, Type: models.TensorType(t, dims(shape...)...)}
}

// elementTypes are those that the protocol carries.
var elementTypes = []models.DataType{
	models.Float32, models.Float64, models.Float16, models.BFloat16, models.Bool, models.String,
	models.Int8, models.Int16, models.Int32, models.Int64,
	models.Uint8, models.Uint16, models.Uint32, models.Uint64,
}

// newBackend returns a backend that fails t if a call breaks a promise.
func newBackend(t testing.TB) *backend {
	f := &backend{t: t}
	add := func(name string, info query.Info) *query.Service {
		s := query.NewService(models.ServiceID(len(f.List)), name)
		s.Policy, s.QoSTarget, s.QueueLimit, s.MaxBatch, s.MaxQueryBatch, s.Backend = "edf", 100*time.Millisecond, 256, 1, 8, f
		info.Platform, info.Device, info.Operators, info.Hash = "onnxruntime_onnx", "cpu", 2, "abc123"
		if len(info.Inputs) > 0 {
			if err := s.Loaded(info); err != nil {
				t.Fatal(err)
			}
			s.SetReady(true)
		}
		f.List = append(f.List, s)
		return s
	}
	add("simple", query.Info{
		Inputs:  []models.TensorSpec{spec("INPUT0", models.Int32, -1, 16), spec("INPUT1", models.Int32, -1, 16)},
		Outputs: []models.TensorSpec{spec("OUTPUT0", models.Int32, -1, 16), spec("OUTPUT1", models.Int32, -1, 16)},
	})
	for _, e := range elementTypes {
		add("echo_"+e.Protocol(), query.Info{
			Inputs:  []models.TensorSpec{spec("X", e, -1, -1)},
			Outputs: []models.TensorSpec{spec("Y", e, -1, -1)},
		})
	}
	add("linked", query.Info{
		Inputs:  []models.TensorSpec{spec("A", models.Int64, -2, -3), spec("B", models.Int64, -2, -3), spec("C", models.Float32, -2, 4)},
		Outputs: []models.TensorSpec{spec("A", models.Int64, -2, -3), spec("B", models.Int64, -2, -3), spec("C", models.Float32, -2, 4)},
	})
	add("varied", query.Info{
		Inputs: []models.TensorSpec{spec("X", models.Int8, -1, 1)}, Outputs: []models.TensorSpec{spec("Y", models.Int8, -1, 1)},
	}).Variants = []query.Variant{{Name: "fast", Accuracy: 76.13}, {Name: "mid", Accuracy: 77.37}, {Name: "best", Accuracy: 78.31}}
	add("unloaded", query.Info{})
	return f
}

func (f *backend) Services() []*query.Service { return f.List }

func (f *backend) Service(name []byte) *query.Service {
	for _, s := range f.List {
		if s.Name == string(name) {
			return s
		}
	}
	return nil
}

func (f *backend) Alloc(s *query.Service, n int64) (query.Memory, error) {
	if n > memoryBytes {
		return query.Memory{}, query.ErrTooLarge
	}
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Mu.Out++
	f.Mu.Largest = max(f.Mu.Largest, n)
	return query.Memory{Bytes: make([]byte, n), Offset: 128}, nil
}

func (f *backend) Free(*query.Service, query.Memory) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Mu.Out--
}

func (f *backend) Submit(c *query.Call) error {
	if err := f.Refuse.Load(); err != nil {
		return *err
	}
	f.check(c)
	f.Mu.Lock()
	f.Mu.Last = query.Call{Service: c.Service, ID: bytes.Clone(c.ID), Size: c.Size, SeqLen: c.SeqLen, Shape: c.Shape,
		Timeout: c.Timeout, Priority: c.Priority, Given: slices.Clone(c.Given)}
	for _, in := range c.Inputs {
		in.Data = bytes.Clone(in.Data)
		f.Mu.Last.Inputs = append(f.Mu.Last.Inputs, in)
	}
	if f.Hold.Load() {
		f.Mu.Held = append(f.Mu.Held, c)
		f.Mu.Unlock()
		return nil
	}
	f.Mu.Unlock()
	c.Answer(f.Run(c))
	return nil
}

// check holds what every call promises.
func (f *backend) check(c *query.Call) {
	for i, in := range c.Inputs {
		elements := int64(1)
		for _, d := range in.Shape {
			elements *= d
		}
		if size := int64(in.Type.Bytes()); size > 0 && int64(len(in.Data)) != elements*size {
			f.t.Errorf("input %d: %d bytes for shape %v of %v", i, len(in.Data), in.Shape, in.Type)
		}
		if in.Offset%query.Alignment != 0 {
			f.t.Errorf("input %d is not aligned: %d", i, in.Offset)
		}
	}
}

// Run returns what the backend answers to a call.
func (f *backend) Run(c *query.Call) query.Reply {
	r := query.Reply{Queue: 1, Compute: 3}
	c.Service.Stats.Executed(1)
	for i, v := range c.Service.Variants {
		if r.Variant == "" && (c.Variant == i || c.Variant < 0 && v.Accuracy >= c.LeastAccuracy) {
			r.Variant = v.Name
		}
	}
	r.Outputs = append(r.Outputs, c.Inputs...)
	if c.Service.Name == "simple" {
		sum, diff := make([]byte, len(c.Inputs[0].Data)), make([]byte, len(c.Inputs[0].Data))
		for i := 0; i < len(sum); i += 4 {
			a, b := binary.LittleEndian.Uint32(c.Inputs[0].Data[i:]), binary.LittleEndian.Uint32(c.Inputs[1].Data[i:])
			binary.LittleEndian.PutUint32(sum[i:], a+b)
			binary.LittleEndian.PutUint32(diff[i:], a-b)
		}
		r.Outputs[0].Data, r.Outputs[1].Data = sum, diff
	}
	if data := f.Output.Load(); data != nil {
		for i := range r.Outputs {
			r.Outputs[i].Data = *data
		}
	}
	return r
}

// AnswerHeld answers the calls that wait.
func (f *backend) AnswerHeld(r func(*query.Call) query.Reply) {
	f.Mu.Lock()
	held := f.Mu.Held
	f.Mu.Held = nil
	f.Mu.Unlock()
	for _, c := range held {
		c.Answer(r(c))
	}
}

// WaitHeld waits until so many calls wait.
func (f *backend) WaitHeld(n int) {
	f.t.Helper()
	eventually(f.t, "calls held", func() bool {
		f.Mu.Lock()
		defer f.Mu.Unlock()
		return len(f.Mu.Held) == n
	})
}

func (f *backend) Cancel(c *query.Call) {
	f.Mu.Lock()
	f.Mu.Cancelled++
	f.Mu.Unlock()
}

// Cancelled returns how many calls were cancelled.
func (f *backend) Cancelled() int {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	return f.Mu.Cancelled
}

func (f *backend) Release(*query.Call) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	f.Mu.Out--
	f.Mu.Released++
}

func (f *backend) Live() bool             { return !f.Dead.Load() }
func (f *backend) NotReady() *query.Error { return f.Unready.Load() }

// eventually waits for what happens in another goroutine or in the kernel.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("still waiting: %s", what)
}

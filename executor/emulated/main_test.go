package emulated

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait.
const patience = 30 * time.Second

// formula is a device on which each operator takes so much for each query of a
// batch, and a group as long as its longest span and a half of the others. It
// knows groups of two, and batches of up to 8.
type formula struct {
	operator time.Duration // of the model at position 0; the next take twice as long
	spread   float64       // of Sample, upwards
}

func (f formula) Covers(g models.Group) bool {
	if len(g.Spans) > 2 || len(g.Spans) == 2 && g.Spans[0].Service == g.Spans[1].Service {
		return false
	}
	for _, s := range g.Spans {
		if s.Size > 8 {
			return false
		}
	}
	return true
}

func (f formula) Latency(g models.Group) time.Duration {
	var sum, longest time.Duration
	for _, s := range g.Spans {
		took := f.operator * time.Duration(s.Len()*s.Size*(1+min(int(s.Service), 1)))
		sum, longest = sum+took, max(longest, took)
	}
	return longest + (sum-longest)/2
}

func (f formula) Sample(g models.Group, random *rand.Rand) time.Duration {
	return time.Duration(float64(f.Latency(g)) * (1 + f.spread*random.Float64()))
}

// operators is how many operators the models of a rig have.
const operators = 10

// known are the models of a rig's device.
var known = []device.ModelInfo{
	{Name: "a", Operators: operators, Sizes: []int{1, 4}, SeqLens: []int{0}},
	{Name: "b", Operators: operators, Sizes: []int{1, 4}, SeqLens: []int{0}},
	{Name: "c", Operators: operators, Sizes: []int{1, 4}, SeqLens: []int{8, 16}},
}

// rig is an executor of three services: 0 and 1 have the models at positions 0
// and 1, and 2 has that at 1 too, with sequences.
type rig struct {
	*executor.Executor
	t      testing.TB
	arenas [4]*wire.InputArena
	mu     struct {
		sync.Mutex
		events []executor.Event
	}
}

func service(id models.ServiceID, name, model string) executor.ServiceSpec {
	return executor.ServiceSpec{ID: id, Name: name, Load: wire.LoadSpec{ModelPath: model}, OutputBytes: 1 << 16}
}

func options(f formula) executor.Options {
	return executor.Options{
		Inside: New(f, 1, known, "h"), CloseGrace: time.Millisecond, Poll: 200 * time.Microsecond, SpanTimeout: time.Hour,
		Services: []executor.ServiceSpec{service(0, "zero", "a"), service(1, "one", "b"), service(2, "two", "c")},
	}
}

// newRig returns an executor that is not started.
func newRig(t testing.TB, f formula, change ...func(*executor.Options)) *rig {
	t.Helper()
	r := &rig{t: t}
	o := options(f)
	o.Events = func(e executor.Event) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.mu.events = append(r.mu.events, e)
	}
	for _, c := range change {
		c(&o)
	}
	for i := range r.arenas {
		var err error
		if r.arenas[i], err = wire.NewInputArena(1<<16, false); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.arenas[i].Close() })
	}
	for i := range o.Services {
		if s := &o.Services[i]; s.Inputs == nil {
			s.Inputs = r.arenas[s.ID]
		}
	}
	e, err := executor.New(o)
	if err != nil {
		t.Fatal(err)
	}
	r.Executor = e
	t.Cleanup(func() {
		if err := e.Close(); err != nil && !errors.Is(err, executor.ErrClosed) {
			t.Errorf("closing: %v", err)
		}
	})
	return r
}

func startRig(t testing.TB, f formula, change ...func(*executor.Options)) *rig {
	t.Helper()
	r := newRig(t, f, change...)
	if err := r.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.awaitReady(0, 1, 2)
	return r
}

func (r *rig) awaitReady(ids ...models.ServiceID) {
	r.t.Helper()
	for _, id := range ids {
		for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond / 10) {
			if state, err := r.State(id); err != nil || state.Phase == executor.Ready {
				break
			}
			if time.Now().After(deadline) {
				r.t.Fatalf("service %d does not get ready", id)
			}
		}
	}
}

// Add adds a service, with memory for its inputs.
func (r *rig) Add(s executor.ServiceSpec) error {
	s.Inputs = r.arenas[s.ID]
	return r.Executor.Add(s)
}

// add adds a service and waits until it is ready.
func (r *rig) add(s executor.ServiceSpec) error {
	err := r.Add(s)
	if err == nil {
		r.awaitReady(s.ID)
	}
	return err
}

// inputs puts queries of these batch sizes into the arena of a service.
func (r *rig) inputs(id models.ServiceID, first models.QueryID, sizes ...int) (all []wire.QueryTensors) {
	r.t.Helper()
	for i, size := range sizes {
		bytes := int64(size * Columns * 4)
		offset, _, err := r.arenas[id].Alloc(bytes)
		if err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(func() {
			if err := r.arenas[id].Free(offset); err != nil {
				r.t.Error(err)
			}
		})
		all = append(all, wire.QueryTensors{ID: first + models.QueryID(i), Inputs: []models.Tensor{
			{Type: models.Float32, Shape: []int64{int64(size), Columns}, Offset: offset, Bytes: bytes},
		}})
	}
	return all
}

// on returns a span with the queries that it needs.
func (r *rig) on(id models.ServiceID, batch models.BatchID, start, end, size int) executor.SpanRequest {
	r.t.Helper()
	s := executor.SpanRequest{Span: models.Span{Service: id, Batch: batch, Start: start, End: end, Size: size}}
	if start == 0 {
		s.Queries = r.inputs(id, models.QueryID(100*batch), size)
	}
	return s
}

func (r *rig) run(round uint64, spans ...executor.SpanRequest) {
	r.t.Helper()
	if err := r.Run(round, spans); err != nil {
		r.t.Fatal(err)
	}
}

// next returns the next outcome, whose outputs are released.
func (r *rig) next() executor.Outcome {
	r.t.Helper()
	select {
	case o, ok := <-r.Outcomes():
		if !ok {
			r.t.Fatal("there is no outcome any more")
		}
		for i := range o.Spans {
			for j := range o.Spans[i].Queries {
				o.Spans[i].Queries[j].Release()
			}
		}
		return o
	case <-time.After(patience):
		r.t.Fatal("no outcome comes")
		return executor.Outcome{}
	}
}

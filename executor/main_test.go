package executor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments"
	"github.com/overlapd/overlapd/segments/wire"
	segworker "github.com/overlapd/overlapd/segments/worker"
)

// What this binary is when a test starts it, by environment.
const (
	roleVariable = "OVERLAPD_TEST_ROLE"
	roleWorker   = roleVariable + "=worker"
	roleEngine   = roleVariable + "=engine"
	roleParent   = roleVariable + "=parent"
	roleStranger = roleVariable + "=stranger"
)

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

func TestMain(m *testing.M) {
	switch roleVariable + "=" + os.Getenv(roleVariable) {
	case roleWorker:
		if err := segworker.Run(loadFake); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case roleEngine:
		if err := segworker.Run(segments.LoadONNX); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case roleParent:
		parent()
	case roleStranger:
		lie("hello", 0)
		time.Sleep(time.Minute)
		os.Exit(0)
	}
	// The race detector has a process sleep for a second before it exits.
	beParentOf(roleWorker, "GOTRACEBACK=single", "GORACE=atexit_sleep_ms=0")
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	if left := children(os.Getpid()); code == 0 && len(left) > 0 {
		fmt.Fprintln(os.Stderr, "processes are left:", left)
		code = 1
	}
	os.Exit(code)
}

// beParentOf sets what the processes that this one starts take over.
func beParentOf(variables ...string) {
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
}

// parent runs an executor until it is killed, and prints the worker's PID.
func parent() {
	signal.Ignore(syscall.SIGINT)
	beParentOf(roleWorker)
	ready := make(chan int, 1)
	e, err := New(Options{
		Command:  []string{os.Args[0]},
		Services: []ServiceSpec{{Name: "orphan", Inputs: newInputs(), OutputBytes: 1 << 20}},
		Events: func(e Event) {
			if e.Kind == WorkerReady {
				ready <- e.PID
			}
		},
	})
	if err != nil {
		panic(err)
	}
	if err := e.Start(context.Background()); err != nil {
		panic(err)
	}
	pid := <-ready
	if text := os.Getenv("OVERLAPD_TEST_TEXT"); text != "" {
		offset, data, _ := e.service(0).spec.Inputs.Alloc(int64(len(text)))
		copy(data, text)
		e.Run(1, []SpanRequest{{
			Span:    models.Span{Batch: 1, End: fakeOperators},
			Queries: []wire.QueryTensors{{Inputs: []models.Tensor{{Type: models.Uint8, Shape: []int64{int64(len(text))}, Offset: offset, Bytes: int64(len(text))}}}},
		}})
	}
	fmt.Println(pid)
	select {}
}

// children returns the processes whose parent is pid, dead or alive.
func children(pid int) (found []int) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		// The name may hold anything; what follows it is state and parent.
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		if len(fields) > 1 && fields[1] == strconv.Itoa(pid) {
			child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			found = append(found, child)
		}
	}
	return found
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

// fixture is an executor under test with the events it emitted.
type fixture struct {
	*Executor
	t testing.TB

	inputs map[models.ServiceID]*wire.InputArena
	mu     sync.Mutex
	events []Event
	news   chan struct{}
	round  uint64
}

// start returns a running executor with a service for each model path.
func start(t testing.TB, change func(*Options), paths ...string) *fixture {
	t.Helper()
	f := &fixture{t: t, news: make(chan struct{}, 1)}
	opts := Options{
		Command: []string{os.Args[0]},
		Poll:    200 * time.Microsecond, // as the daemon does
		Policy:  child.Policy{BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond},
		Events:  f.event,
	}
	for i, path := range paths {
		opts.Services = append(opts.Services, fakeSpec(models.ServiceID(i), path))
	}
	if change != nil {
		change(&opts)
	}
	for i := range opts.Services {
		if s := &opts.Services[i]; s.Inputs != nil {
			f.inputs = map[models.ServiceID]*wire.InputArena{s.ID: s.Inputs}
		} else {
			s.Inputs = f.Arena(s.ID)
		}
	}
	e, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	f.Executor = e
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
		if left := children(os.Getpid()); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	})
	return f
}

func fakeSpec(id models.ServiceID, path string) ServiceSpec {
	return ServiceSpec{
		ID: id, Name: fmt.Sprintf("service%d", id),
		Load: wire.LoadSpec{ModelPath: path}, OutputBytes: 1 << 20,
	}
}

// newInputs returns memory for the inputs of a service.
func newInputs() *wire.InputArena {
	arena, err := wire.NewInputArena(1<<20, false)
	if err != nil {
		panic(err)
	}
	return arena
}

// Arena returns where the inputs of a service lie, which is the same memory for as long
// as the test runs.
func (f *fixture) Arena(id models.ServiceID) *wire.InputArena {
	if f.inputs[id] == nil {
		if f.inputs == nil {
			f.inputs = map[models.ServiceID]*wire.InputArena{}
		}
		f.inputs[id] = newInputs()
	}
	return f.inputs[id]
}

// Add adds a service.
func (f *fixture) Add(s ServiceSpec) error {
	s.Inputs = f.Arena(s.ID)
	return f.Executor.Add(s)
}

// Close closes the executor, and then the memory of its services.
func (f *fixture) Close() error {
	err := f.Executor.Close()
	for _, a := range f.inputs {
		a.Close()
	}
	return err
}

// startReady returns an executor all of whose workers are ready.
func startReady(t testing.TB, change func(*Options), services int) *fixture {
	t.Helper()
	f := start(t, change, make([]string, services)...)
	for i := range services {
		awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == models.ServiceID(i) })
	}
	return f
}

func (f *fixture) event(e Event) {
	f.mu.Lock()
	f.events = append(f.events, e)
	f.mu.Unlock()
	select {
	case f.news <- struct{}{}:
	default:
	}
}

// awaitEvent returns the first event of a kind that fits, and forgets it.
func awaitEvent(f *fixture, kind eventKind, fits func(Event) bool) Event {
	f.t.Helper()
	deadline := time.After(patience)
	for {
		f.mu.Lock()
		for i, e := range f.events {
			if e.Kind == kind && (fits == nil || fits(e)) {
				f.events = slices.Delete(f.events, i, i+1)
				f.mu.Unlock()
				return e
			}
		}
		f.mu.Unlock()
		select {
		case <-f.news:
		case <-deadline:
			f.t.Fatalf("no event of kind %d; there were %+v", kind, f.events)
		}
	}
}

// query puts a text into a service's arena.
func (f *fixture) query(service models.ServiceID, id models.QueryID, text string) wire.QueryTensors {
	f.t.Helper()
	q, free := f.place(service, id, text)
	f.t.Cleanup(free)
	return q
}

// place is query for who frees the text himself.
func (f *fixture) place(service models.ServiceID, id models.QueryID, text string) (q wire.QueryTensors, free func()) {
	f.t.Helper()
	arena := f.Arena(service)
	offset, data, err := arena.Alloc(int64(len(text)))
	if err != nil {
		f.t.Fatal(err)
	}
	copy(data, text)
	return wire.QueryTensors{ID: id, Inputs: []models.Tensor{{
		Type: models.Uint8, Shape: []int64{int64(len(text))}, Offset: offset, Bytes: int64(len(text)),
	}}}, func() { arena.Free(offset) }
}

// whole returns the span of all operators of a new batch.
func (f *fixture) whole(service models.ServiceID, batch models.BatchID, texts ...string) SpanRequest {
	f.t.Helper()
	r := SpanRequest{Span: models.Span{Service: service, Batch: batch, End: fakeOperators, Size: len(texts)}}
	for i, text := range texts {
		r.Queries = append(r.Queries, f.query(service, models.QueryID(i), text))
	}
	return r
}

// send starts a round and returns its number.
func (f *fixture) send(spans ...SpanRequest) uint64 {
	f.t.Helper()
	f.round++
	if err := f.Run(f.round, spans); err != nil {
		f.t.Fatal(err)
	}
	return f.round
}

func (f *fixture) receive() Outcome {
	f.t.Helper()
	select {
	case o := <-f.Outcomes():
		return o
	case <-time.After(patience):
		f.t.Fatal("no outcome")
		return Outcome{}
	}
}

// do runs one span and returns what became of it.
func (f *fixture) do(span SpanRequest) SpanOutcome {
	f.t.Helper()
	round := f.send(span)
	o := f.receive()
	if o.Round != round || len(o.Spans) != 1 {
		f.t.Fatalf("outcome of round %d with %d spans, expected round %d", o.Round, len(o.Spans), round)
	}
	return o.Spans[0]
}

// held returns what the worker of the first service holds of intermediates.
func (f *fixture) held() int64 {
	f.t.Helper()
	state, err := f.State(0)
	if err != nil {
		f.t.Fatal(err)
	}
	return state.IntermediateBytes
}

// texts returns the outputs of a span and releases them.
func texts(s SpanOutcome) (all []string) {
	for i := range s.Queries {
		for _, out := range s.Queries[i].Outputs {
			all = append(all, string(out.Data))
		}
		s.Queries[i].Release()
	}
	return all
}

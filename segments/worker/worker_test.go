package worker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// fakeEngine has four operators, each of which adds one to every byte. It
// fails where a test tells it to.
type fakeEngine struct {
	mu      sync.Mutex // not held while operators run
	batches map[models.BatchID][]wire.QueryTensors
	steps   map[models.BatchID]int
	fail    map[string]error // by method
	onStep  func(op int)
	closed  bool
	copies  bool
	took    time.Duration
	kept    int64
	trims   atomic.Int64
}

const fakeOperators = 4

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		batches: map[models.BatchID][]wire.QueryTensors{},
		steps:   map[models.BatchID]int{},
		fail:    map[string]error{},
		onStep:  func(int) {},
	}
}

func (e *fakeEngine) Info() wire.Info {
	return wire.Info{Hash: "fake", Operators: make([]models.Operator, fakeOperators)}
}

func (e *fakeEngine) Start(id models.BatchID, queries []wire.QueryTensors) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batches[id] = keep(queries)
	return e.fail["start"]
}

// keep copies queries, but for their data, since the list is valid only during a call.
func keep(queries []wire.QueryTensors) []wire.QueryTensors {
	list := slices.Clone(queries)
	for i := range list {
		list[i].Inputs = slices.Clone(list[i].Inputs)
		for j := range list[i].Inputs {
			list[i].Inputs[j].Shape = slices.Clone(list[i].Inputs[j].Shape)
		}
	}
	return list
}

func (e *fakeEngine) Run(id models.BatchID, start, end, _ int, stop *uint32, out OutputFunc) (Ran, error) {
	if err := e.fail["run"]; err != nil {
		return Ran{}, err
	}
	op := start
	for ; op < end && atomic.LoadUint32(stop) == 0; op++ {
		e.onStep(op)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.steps[id] += op - start
	var err error
	if op == fakeOperators {
		err = e.finish(id, out)
	}
	return Ran{Reached: op, DeviceTime: e.took}, err
}

func (e *fakeEngine) finish(id models.BatchID, out OutputFunc) error {
	for i, q := range e.batches[id] {
		for j, in := range q.Inputs {
			data, err := out(i, j, in.Type, in.Shape, int64(len(in.Data)))
			if err != nil {
				return err
			}
			for k, v := range in.Data {
				data[k] = v + byte(e.steps[id])
			}
		}
	}
	e.release(id)
	return e.fail["finish"]
}

func (e *fakeEngine) Describe(id models.BatchID) ([]models.Tensor, uint64, error) {
	return []models.Tensor{{Type: models.Uint8, Shape: []int64{1}, Bytes: 1}}, 7, e.fail["describe"]
}

func (e *fakeEngine) Export(id models.BatchID, to []models.Tensor) error {
	to[0].Data[0] = byte(e.steps[id])
	return e.fail["export"]
}

func (e *fakeEngine) Import(id models.BatchID, at int, queries []wire.QueryTensors, cut uint64, values []models.Tensor) (bool, error) {
	e.batches[id], e.steps[id] = keep(queries), int(values[0].Data[0])
	return e.copies, e.fail["import"]
}

func (e *fakeEngine) Release(id models.BatchID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.release(id)
}

func (e *fakeEngine) release(id models.BatchID) {
	delete(e.batches, id)
	delete(e.steps, id)
}

func (e *fakeEngine) IntermediateBytes() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return int64(len(e.batches)) + e.kept
}

func (e *fakeEngine) Trim() {
	e.kept = 0
	e.trims.Add(1)
}

func (e *fakeEngine) Close() error {
	e.closed = true
	return e.fail["close"]
}

// workerTest plays the daemon for a worker in this process.
type workerTest struct {
	t       *testing.T
	engine  *fakeEngine
	inputs  *wire.InputArena
	moves   *wire.InputArena
	outputs *wire.Outputs
	socket  *os.File
	frames  *wire.FrameReader
	served  chan error
}

func startWorker(t *testing.T, load LoadFunc) *workerTest {
	w := &workerTest{t: t, engine: newFakeEngine(), served: make(chan error, 1)}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if w.inputs, err = wire.NewInputArena(1<<16, true); err != nil {
		t.Fatal(err)
	}
	if w.outputs, err = wire.NewOutputs(1 << 16); err != nil {
		t.Fatal(err)
	}
	if w.moves, err = wire.NewMoveArena(1 << 16); err != nil {
		t.Fatal(err)
	}
	w.socket = os.NewFile(uintptr(pair[0]), "daemon")
	w.frames = wire.NewFrameReader(w.socket)
	other := os.NewFile(uintptr(pair[1]), "worker")
	files := Files{other, w.inputs.File().Fd(), w.outputs.File().Fd(), w.moves.File().Fd()}
	go func() {
		w.served <- Serve(files, load)
		other.Close()
	}()
	t.Cleanup(func() {
		w.socket.Close()
		w.outputs.Close()
		w.inputs.Close()
		w.moves.Close()
		goleak.VerifyNone(t)
	})
	hello := expect[*wire.Hello](w)
	if hello.Protocol != wire.ProtocolVersion || hello.PID != os.Getpid() {
		t.Fatalf("hello: %+v", hello)
	}
	return w
}

// startLoaded returns a worker that has its model. What is not nil prepares
// the engine before.
func startLoaded(t *testing.T, prepare func(*workerTest)) *workerTest {
	loaded := make(chan *workerTest, 1)
	w := startWorker(t, func(wire.LoadSpec, Memory, ProgressFunc) (Engine, error) {
		w := <-loaded
		if prepare != nil {
			prepare(w)
		}
		return w.engine, nil
	})
	loaded <- w
	w.send(&wire.LoadSpec{Moves: true})
	if ready := expect[*wire.Info](w); len(ready.Operators) != fakeOperators {
		t.Fatalf("ready: %+v", ready)
	}
	return w
}

func (w *workerTest) send(m wire.Message) {
	w.t.Helper()
	frame, err := wire.AppendFrame(nil, m)
	if err == nil {
		_, err = w.socket.Write(frame)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func expect[M wire.Message](w *workerTest) M {
	w.t.Helper()
	kind, payload, err := w.frames.Next()
	if err != nil {
		w.t.Fatal(err)
	}
	var m M
	m = reflect.New(reflect.TypeOf(m).Elem()).Interface().(M)
	if kind != m.Kind() {
		w.t.Fatalf("got %s: %q", kind, payload)
	}
	if err := wire.Decode(payload, m); err != nil {
		w.t.Fatal(err)
	}
	return m
}

// query puts a tensor into the input arena.
func (w *workerTest) query(id models.QueryID, content string) wire.QueryTensors {
	w.t.Helper()
	offset, data, err := w.inputs.Alloc(int64(len(content)))
	if err != nil {
		w.t.Fatal(err)
	}
	copy(data, content)
	return wire.QueryTensors{ID: id, Inputs: []models.Tensor{{
		Type: models.Uint8, Shape: []int64{int64(len(content))}, Offset: offset, Bytes: int64(len(content)),
	}}}
}

func (w *workerTest) end(want error) {
	w.t.Helper()
	if err := <-w.served; !errors.Is(err, want) || (want == nil) != (err == nil) {
		w.t.Fatalf("Serve: %v, want %v", err, want)
	}
}

func TestServeRunsABatchInSpans(t *testing.T) {
	w := startLoaded(t, nil)
	w.send(&wire.Run{Round: 1, Batch: 7, End: 1, Size: 2, Queries: []wire.QueryTensors{w.query(1, "abc"), w.query(2, "x")}})
	if d := expect[*wire.Done](w); d.Round != 1 || d.Batch != 7 || d.Reached != 1 || d.Finished() || w.outputs.Held() != 1 {
		t.Fatalf("first span: %+v", d)
	}
	w.send(&wire.Run{Round: 2, Batch: 7, Start: 1, End: 4, Size: 2})
	d := expect[*wire.Done](w)
	if !d.Finished() || d.Reached != 4 || len(d.Outputs) != 2 || w.outputs.Held() != 0 {
		t.Fatalf("last span: %+v", d)
	}
	for i, want := range []string{"efg", "|"} {
		lease, data, err := w.outputs.Acquire(&d.Outputs[i][0])
		if err != nil || string(data) != want {
			t.Errorf("query %d: %q, %v", i, data, err)
		}
		lease.Release()
	}
	w.send(&wire.Quit{})
	w.end(nil)
	if !w.engine.closed {
		t.Error("the engine was not closed")
	}
}

// Frames that wait in the socket are all answered, in order.
func TestServeTakesRunsAhead(t *testing.T) {
	w := startLoaded(t, nil)
	w.send(&wire.Run{Round: 1, Batch: 1, End: 2, Size: 1, Queries: []wire.QueryTensors{w.query(1, "a")}})
	w.send(&wire.Run{Round: 2, Batch: 2, End: 4, Size: 1, Queries: []wire.QueryTensors{w.query(2, "b")}})
	w.send(&wire.Run{Round: 3, Batch: 1, Start: 2, End: 4, Size: 1})
	for round := uint64(1); round <= 3; round++ {
		if d := expect[*wire.Done](w); d.Round != round {
			t.Fatalf("round %d: %+v", round, d)
		}
	}
}

// In back-to-back execution, the engine sees each query as a batch of its own.
func TestServeRunsBackToBack(t *testing.T) {
	stop := false
	w := startLoaded(t, func(w *workerTest) {
		w.engine.took = time.Microsecond
		w.engine.onStep = func(op int) {
			if stop && op == 2 && len(w.engine.batches[2][0].Inputs[0].Data) == 1 {
				w.outputs.Stop(5)
			}
		}
	})
	run := wire.Run{Round: 1, Batch: 7, End: 4, Size: 1, Queries: []wire.QueryTensors{w.query(1, "abc"), w.query(2, "x")}}
	w.send(&run)
	d := expect[*wire.Done](w)
	if d.Reached != 4 || len(d.Outputs) != 2 || d.DeviceNanos != 2000 {
		t.Fatalf("%+v", d)
	}
	for i, want := range []string{"efg", "|"} {
		lease, data, err := w.outputs.Acquire(&d.Outputs[i][0])
		if err != nil || string(data) != want {
			t.Errorf("query %d: %q, %v", i, data, err)
		}
		lease.Release()
	}
	// One that is stopped has not begun, and leaves nothing.
	stop, run.Batch, run.Stop = true, 2, 5
	for range 10000 { // more than the output arena holds at once
		w.send(&run)
		if d := expect[*wire.Done](w); d.Reached != 0 || d.Finished() {
			t.Fatalf("stopped in its second query: %+v", d)
		}
		w.outputs.ClearStop(5)
	}
	stop, run.Queries[1].Inputs[0].Offset = false, w.inputs.Bytes()
	bad := []wire.Run{run, run}
	bad[0].End = 3
	for i := range bad {
		w.send(&bad[i])
		if f := expect[*wire.Failed](w); !errors.Is(f.Err(), wire.ErrSpanOrder) && !errors.Is(f.Err(), wire.ErrInput) {
			t.Errorf("bad run %d: %v", i, f.Err())
		}
	}
	w.send(&wire.Quit{})
	w.end(nil)
	if len(w.engine.batches) != 0 {
		t.Error("a batch is left")
	}
}

func TestServeAnswersBadRuns(t *testing.T) {
	w := startLoaded(t, nil)
	inside := w.query(1, "abcd")
	outside, misshapen := w.query(2, "abcd"), w.query(3, "abcd")
	outside.Inputs[0].Offset = w.inputs.Bytes() - 3
	misshapen.Inputs[0].Shape[0] = 5
	bad := []struct {
		name string
		run  wire.Run
		want error
	}{
		{"unknown batch", wire.Run{Batch: 9, Start: 1, End: 2}, wire.ErrUnknownBatch},
		{"beyond the last operator", wire.Run{Batch: 9, End: 5, Queries: []wire.QueryTensors{inside}}, wire.ErrSpanOrder},
		{"input outside", wire.Run{Batch: 9, End: 1, Queries: []wire.QueryTensors{outside}}, wire.ErrInput},
		{"input misshapen", wire.Run{Batch: 9, End: 1, Queries: []wire.QueryTensors{misshapen}}, wire.ErrInput},
	}
	for _, c := range bad {
		w.send(&c.run)
		if f := expect[*wire.Failed](w); !errors.Is(f.Err(), c.want) || f.Batch != 9 {
			t.Errorf("%s: %v", c.name, f.Err())
		}
	}
	for _, second := range []wire.Run{
		{Batch: 1, End: 1, Queries: []wire.QueryTensors{inside}}, // exists
		{Batch: 1, Start: 2, End: 3},                             // is at 1
	} {
		w.send(&wire.Run{Batch: 1, End: 1, Queries: []wire.QueryTensors{inside}})
		expect[*wire.Done](w)
		w.send(&second)
		if f := expect[*wire.Failed](w); !errors.Is(f.Err(), wire.ErrBatchExists) && !errors.Is(f.Err(), wire.ErrSpanOrder) {
			t.Errorf("run of [%d, %d): %v", second.Start, second.End, f.Err())
		}
	}
	w.send(&wire.Quit{})
	w.end(nil)
	if len(w.engine.batches) != 0 {
		t.Error("a batch that failed is still there")
	}
}

func TestServeReleasesFailedBatches(t *testing.T) {
	for _, method := range []string{"start", "run", "finish"} {
		w := startLoaded(t, func(w *workerTest) {
			w.engine.fail[method] = fmt.Errorf("told to: %w", wire.ErrMemory)
		})
		for range 100 { // more than the output arena holds at once
			w.send(&wire.Run{Batch: 1, End: 4, Queries: []wire.QueryTensors{w.query(1, "0123456789")}})
			if f := expect[*wire.Failed](w); !errors.Is(f.Err(), wire.ErrMemory) {
				t.Fatalf("%s: %v", method, f.Err())
			}
		}
		w.send(&wire.Quit{})
		w.end(nil)
		if len(w.engine.batches) != 0 {
			t.Errorf("%s: a batch is left", method)
		}
	}
}

func TestServeRelease(t *testing.T) {
	w := startLoaded(t, nil)
	w.send(&wire.Release{Batch: 3}) // not there: nothing happens
	w.send(&wire.Run{Batch: 1, End: 1, Queries: []wire.QueryTensors{w.query(1, "a")}})
	expect[*wire.Done](w)
	w.send(&wire.Release{Batch: 1})
	w.send(&wire.Run{Batch: 1, Start: 1, End: 2})
	if f := expect[*wire.Failed](w); !errors.Is(f.Err(), wire.ErrUnknownBatch) {
		t.Fatal(f.Err())
	}
}

// TestServeOutputTooLarge asks for outputs that would not fit if there were no others:
// of one query, which can never be answered, and of two, which can be one by one.
func TestServeOutputTooLarge(t *testing.T) {
	w := startLoaded(t, nil)
	q := w.query(1, string(make([]byte, 1<<14)))
	several := func(id models.QueryID, n int) wire.QueryTensors {
		return wire.QueryTensors{ID: id, Inputs: slices.Repeat(q.Inputs, n)}
	}
	for n, test := range []struct {
		queries []wire.QueryTensors
		want    error
	}{
		{[]wire.QueryTensors{several(1, 5)}, wire.ErrTooLarge},
		{[]wire.QueryTensors{several(2, 3), several(3, 3)}, wire.ErrArenaFull},
		{[]wire.QueryTensors{several(4, 4)}, nil},
		{[]wire.QueryTensors{several(5, 5)}, wire.ErrArenaFull}, // in addition to the previous one
	} {
		w.send(&wire.Run{Batch: models.BatchID(n), End: 4, Queries: test.queries})
		if test.want == nil {
			expect[*wire.Done](w)
			continue
		}
		err := expect[*wire.Failed](w).Err()
		if !errors.Is(err, test.want) || test.want == wire.ErrTooLarge && !strings.Contains(err.Error(), "worker.output_bytes") {
			t.Errorf("run %d: %v, expected %v", n, err, test.want)
		}
	}
}

// TestServeTrims lets a worker idle: it gives back once what its engine kept, and
// serves on.
func TestServeTrims(t *testing.T) {
	loaded := make(chan *workerTest, 1)
	w := startWorker(t, func(wire.LoadSpec, Memory, ProgressFunc) (Engine, error) { return (<-loaded).engine, nil })
	w.engine.kept = 9
	loaded <- w
	w.send(&wire.LoadSpec{TrimNanos: int64(time.Millisecond)})
	expect[*wire.Info](w)
	for trims := int64(1); trims <= 2; trims++ {
		w.send(&wire.Run{Batch: 1, End: 4, Queries: []wire.QueryTensors{w.query(1, "abc")}})
		d := expect[*wire.Done](w)
		if lease, data, err := w.outputs.Acquire(&d.Outputs[0][0]); err != nil || string(data) != "efg" {
			t.Errorf("%q, %v", data, err)
		} else {
			lease.Release()
		}
		for w.engine.trims.Load() < trims || w.outputs.Held() != 0 {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // nothing more happens meanwhile
		if n := w.engine.trims.Load(); n != trims {
			t.Errorf("trimmed %d times, expected %d", n, trims)
		}
	}
}

func TestServeOutputArenaFull(t *testing.T) {
	w := startLoaded(t, nil)
	run := &wire.Run{Batch: 1, End: 4, Queries: []wire.QueryTensors{w.query(1, string(make([]byte, 1<<14)))}}
	var held []wire.Lease
	for {
		w.send(run)
		kind, payload, err := w.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == wire.KindFailed {
			var f wire.Failed
			if wire.Decode(payload, &f); !errors.Is(f.Err(), wire.ErrArenaFull) {
				t.Fatal(f.Err())
			}
			break
		}
		var d wire.Done
		if err := wire.Decode(payload, &d); err != nil {
			t.Fatal(err)
		}
		lease, _, err := w.outputs.Acquire(&d.Outputs[0][0])
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, lease)
	}
	if len(held) != 4 {
		t.Errorf("%d outputs fitted", len(held))
	}
	held[2].Release()
	w.send(run)
	if d := expect[*wire.Done](w); !d.Finished() {
		t.Errorf("after a release: %+v", d)
	}
}

func TestServeLoadFails(t *testing.T) {
	told := errors.New("no such model")
	w := startWorker(t, func(wire.LoadSpec, Memory, ProgressFunc) (Engine, error) { return nil, told })
	w.send(&wire.LoadSpec{})
	if f := expect[*wire.Failed](w); f.Message != told.Error() {
		t.Errorf("message %q", f.Message)
	}
	w.end(told)
}

func TestServeProgressIsThinnedOut(t *testing.T) {
	specs := make(chan wire.LoadSpec, 1)
	w := startWorker(t, func(spec wire.LoadSpec, _ Memory, progress ProgressFunc) (Engine, error) {
		specs <- spec
		for i := range int64(1001) {
			progress("read", i, 1000)
		}
		progress("cut", 0, 0)
		return newFakeEngine(), nil
	})
	w.send(&wire.LoadSpec{Service: "s"})
	var seen []wire.Progress
	for {
		kind, payload, err := w.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == wire.KindReady {
			break
		}
		var p wire.Progress
		if err := wire.Decode(payload, &p); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, p)
	}
	if len(seen) > 500 || !slices.Contains(seen, wire.Progress{Phase: "read", Done: 0, Total: 1000}) ||
		!slices.Contains(seen, wire.Progress{Phase: "read", Done: 1000, Total: 1000}) || !slices.Contains(seen, wire.Progress{Phase: "cut", Done: 0, Total: 0}) {
		t.Errorf("%d messages of progress", len(seen))
	}
	if spec := <-specs; spec.Service != "s" {
		t.Errorf("spec: %+v", spec)
	}
}

func TestServeEndsWithItsSocket(t *testing.T) {
	w := startLoaded(t, nil)
	unix.Shutdown(int(w.socket.Fd()), unix.SHUT_RDWR)
	w.end(nil)
	if !w.engine.closed {
		t.Error("the engine was not closed")
	}
}

func TestServeRefusesNonsense(t *testing.T) {
	frame := func(size uint32, rest ...byte) []byte {
		return append(binary.LittleEndian.AppendUint32(nil, size), rest...)
	}
	for name, c := range map[string]struct {
		bytes []byte
		want  error
	}{
		"reply":           {frame(1, byte(wire.KindDone)), wire.ErrUnexpectedKind},
		"unknown kind":    {frame(1, 200), wire.ErrUnexpectedKind},
		"second load":     {frame(3, byte(wire.KindLoad), '{', '}'), wire.ErrUnexpectedKind},
		"short run":       {frame(2, byte(wire.KindRun), 1), wire.ErrMessage},
		"short release":   {frame(2, byte(wire.KindRelease), 1), wire.ErrMessage},
		"frame too large": {frame(1<<31, 1), wire.ErrFrameSize},
	} {
		w := startLoaded(t, nil)
		if _, err := w.socket.Write(c.bytes); err != nil {
			t.Fatal(name, err)
		}
		w.end(c.want)
	}
	w := startWorker(t, func(wire.LoadSpec, Memory, ProgressFunc) (Engine, error) { panic("was never told to load") })
	w.send(&wire.Release{})
	w.end(wire.ErrUnexpectedKind)
}

// The time of the device is passed on beside that of the host, and the engine
// gets the memory that it shares with the daemon, inputs that the driver of a GPU can pin.
func TestServeOnADevice(t *testing.T) {
	engine := newFakeEngine()
	engine.took = 42
	shared := make(chan Memory, 1)
	w := startWorker(t, func(_ wire.LoadSpec, m Memory, _ ProgressFunc) (Engine, error) { shared <- m; return engine, nil })
	w.send(&wire.LoadSpec{CUDA: &wire.CUDASpec{}})
	expect[*wire.Info](w)
	memory := <-shared
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	memory.Inputs[0] = 0 // what can only be read ends the test
	if int64(len(memory.Inputs)) != w.inputs.Bytes() || len(memory.Outputs) <= 1<<16 {
		t.Errorf("%d bytes of inputs, %d of outputs", len(memory.Inputs), len(memory.Outputs))
	}
	w.send(&wire.Run{Batch: 1, End: 1, Size: 1, Queries: []wire.QueryTensors{w.query(1, "a")}})
	if d := expect[*wire.Done](w); d.DeviceNanos != 42 || d.Nanos <= 0 {
		t.Errorf("%+v", d)
	}
	w.send(&wire.Quit{})
	w.end(nil)
}

// TestServeEndsWithItsDevice tells the daemon why, and ends.
func TestServeEndsWithItsDevice(t *testing.T) {
	for _, fault := range []error{wire.ErrDeviceMemory, wire.ErrDeviceLost} {
		t.Run(fault.Error(), func(t *testing.T) {
			w := startLoaded(t, func(w *workerTest) { w.engine.fail["run"] = fault })
			w.send(&wire.Run{Round: 3, Batch: 1, End: 1, Size: 1, Queries: []wire.QueryTensors{w.query(1, "a")}})
			f := expect[*wire.Failed](w)
			if f.Round != 3 || !wire.Ends(f.Err()) || !errors.Is(f.Err(), fault) {
				t.Errorf("%+v", f)
			}
			w.end(fault)
			if !w.engine.closed {
				t.Error("the engine was not closed")
			}
		})
	}
	if wire.Ends(wire.ErrEngine) || wire.Ends(wire.ErrMemory) || wire.Ends(wire.ErrDeviceFull) {
		t.Error("a worker ends for what another batch need not meet")
	}
}

// One that was killed says nothing of its span, as a process would.
func TestKilledSaysNothing(t *testing.T) {
	w := startLoaded(t, func(w *workerTest) { w.engine.fail["run"] = ErrKilled })
	w.send(&wire.Run{Round: 3, Batch: 1, End: 1, Size: 1, Queries: []wire.QueryTensors{w.query(1, "a")}})
	w.end(ErrKilled)
	if kind, payload, err := w.frames.Next(); err == nil {
		t.Errorf("it says %s: %q", kind, payload)
	}
}

// startUnits returns a worker that performs two runs at once.
func startUnits(t *testing.T, prepare func(*workerTest), cores ...int) *workerTest {
	loaded := make(chan *workerTest, 1)
	w := startWorker(t, func(wire.LoadSpec, Memory, ProgressFunc) (Engine, error) {
		w := <-loaded
		prepare(w)
		return w.engine, nil
	})
	loaded <- w
	w.send(&wire.LoadSpec{Units: 2, Cores: cores})
	expect[*wire.Info](w)
	return w
}

// A goroutine that fails ends the worker, although another one reads.
func TestServeEndsBesideAReader(t *testing.T) {
	w := startUnits(t, func(w *workerTest) { w.engine.fail["run"] = wire.ErrDeviceLost })
	w.send(&wire.Run{Round: 3, Batch: 1, End: 1, Size: 1, Share: 1, Queries: []wire.QueryTensors{w.query(1, "a")}})
	if f := expect[*wire.Failed](w); f.Round != 3 {
		t.Errorf("the failure: %+v", f)
	}
	w.end(wire.ErrDeviceLost)
}

// While a run is in progress another message is read, and a run that is in progress when
// the daemon sends Quit is answered.
func TestServeReadsBesideARun(t *testing.T) {
	gate := make(chan struct{})
	w := startUnits(t, func(w *workerTest) { w.engine.onStep = func(int) { <-gate } })
	w.send(&wire.Run{Round: 1, Batch: 1, End: 1, Size: 1, Share: 1, Queries: []wire.QueryTensors{w.query(1, "a")}})
	w.send(&wire.Run{Round: 2, Batch: 9, Start: 1, End: 2, Size: 1, Share: 1})
	if f := expect[*wire.Failed](w); f.Round != 2 || !errors.Is(f.Err(), wire.ErrUnknownBatch) {
		t.Errorf("the run of an unknown batch: %+v", f)
	}
	w.send(&wire.Quit{})
	close(gate)
	if d := expect[*wire.Done](w); d.Round != 1 {
		t.Errorf("the run in progress: %+v", d)
	}
	w.end(nil)
}

// A run is bound to the core that its bit stands for, and one on all units to none.
func TestRunsAreBoundToCores(t *testing.T) {
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	var cores []int
	for cpu := range 64 * len(all) {
		if all.IsSet(cpu) {
			cores = append(cores, cpu)
		}
	}
	ran := make(chan unix.CPUSet, 1)
	w := startUnits(t, func(w *workerTest) {
		w.engine.onStep = func(int) {
			var set unix.CPUSet
			_ = unix.SchedGetaffinity(0, &set)
			ran <- set
		}
	}, cores...)
	last := len(cores) - 1
	var one unix.CPUSet
	one.Set(cores[last])
	for i, c := range []struct {
		share int
		on    uint64
		want  unix.CPUSet
	}{{1, 1 << last, one}, {0, 0, all}, {1, 1 << last, one}, {1, 0, all}} {
		id := models.BatchID(i + 1)
		w.send(&wire.Run{Round: uint64(id), Batch: id, End: 1, Size: 1, Share: c.share, On: c.on, Queries: []wire.QueryTensors{w.query(1, "a")}})
		if got := <-ran; got != c.want {
			t.Errorf("run %d, share %d, cores %b: bound to %v, want %v", i, c.share, c.on, got, c.want)
		}
		expect[*wire.Done](w)
	}
}

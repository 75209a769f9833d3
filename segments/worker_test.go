package segments

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

// fakeEngine has four operators, each of which adds one to every byte. It
// fails where a test tells it to.
type fakeEngine struct {
	batches map[models.BatchID][]QueryInputs
	steps   map[models.BatchID]int
	fail    map[string]error // by method
	onStep  func(op int)
	closed  bool
}

const fakeOperators = 4

func newFakeEngine() *fakeEngine {
	return &fakeEngine{
		batches: map[models.BatchID][]QueryInputs{},
		steps:   map[models.BatchID]int{},
		fail:    map[string]error{},
		onStep:  func(int) {},
	}
}

func (e *fakeEngine) Info() Info {
	return Info{Hash: "fake", Operators: make([]models.Operator, fakeOperators)}
}

func (e *fakeEngine) Start(id models.BatchID, queries []QueryInputs) error {
	e.batches[id] = queries
	return e.fail["start"]
}

func (e *fakeEngine) Run(id models.BatchID, start, end int, stop *uint32) (int, error) {
	if err := e.fail["run"]; err != nil {
		return start, err
	}
	for op := start; op < end; op++ {
		if atomic.LoadUint32(stop) != 0 {
			return op, nil
		}
		e.onStep(op)
		e.steps[id]++
	}
	return end, nil
}

func (e *fakeEngine) Finish(id models.BatchID, out OutputFunc) error {
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
	e.Release(id)
	return e.fail["finish"]
}

func (e *fakeEngine) Release(id models.BatchID) {
	delete(e.batches, id)
	delete(e.steps, id)
}

func (e *fakeEngine) IntermediateBytes() int64 { return int64(len(e.batches)) }

func (e *fakeEngine) Close() error {
	e.closed = true
	return e.fail["close"]
}

// workerTest plays the daemon for a worker in this process.
type workerTest struct {
	t       *testing.T
	engine  *fakeEngine
	inputs  *InputArena
	outputs *Outputs
	socket  socket
	frames  *FrameReader
	served  chan error
}

func startWorker(t *testing.T, load LoadFunc) *workerTest {
	w := &workerTest{t: t, engine: newFakeEngine(), served: make(chan error, 1)}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if w.inputs, err = NewInputArena(1 << 16); err != nil {
		t.Fatal(err)
	}
	if w.outputs, err = NewOutputs(1 << 16); err != nil {
		t.Fatal(err)
	}
	w.socket = socket{fd: pair[0]}
	w.frames = NewFrameReader(&w.socket)
	files := WorkerFiles{uintptr(pair[1]), w.inputs.File().Fd(), w.outputs.File().Fd()}
	go func() {
		w.served <- Serve(files, load)
		unix.Close(pair[1])
	}()
	t.Cleanup(func() {
		unix.Close(w.socket.fd)
		w.outputs.Close()
		w.inputs.Close()
		goleak.VerifyNone(t)
	})
	hello := expect[*Hello](w)
	if hello.Protocol != ProtocolVersion || hello.PID != os.Getpid() {
		t.Fatalf("hello: %+v", hello)
	}
	return w
}

// startLoaded returns a worker that has its model. What is not nil prepares
// the engine before.
func startLoaded(t *testing.T, prepare func(*workerTest)) *workerTest {
	loaded := make(chan *workerTest, 1)
	w := startWorker(t, func(LoadSpec, ProgressFunc) (Engine, error) {
		w := <-loaded
		if prepare != nil {
			prepare(w)
		}
		return w.engine, nil
	})
	loaded <- w
	w.send(&Load{})
	if ready := expect[*Ready](w); len(ready.Info.Operators) != fakeOperators {
		t.Fatalf("ready: %+v", ready)
	}
	return w
}

func (w *workerTest) send(m Message) {
	w.t.Helper()
	frame, err := AppendFrame(nil, m)
	if err == nil {
		err = w.socket.write(frame)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func expect[M Message](w *workerTest) M {
	w.t.Helper()
	kind, payload, err := w.frames.Next()
	if err != nil {
		w.t.Fatal(err)
	}
	message := newMessage(kind)
	if err := message.Decode(payload); err != nil {
		w.t.Fatal(err)
	}
	m, ok := message.(M)
	if !ok {
		w.t.Fatalf("got %+v", message)
	}
	return m
}

// query puts a tensor into the input arena.
func (w *workerTest) query(id models.QueryID, content string) QueryTensors {
	w.t.Helper()
	offset, data, err := w.inputs.Alloc(int64(len(content)))
	if err != nil {
		w.t.Fatal(err)
	}
	copy(data, content)
	return QueryTensors{ID: id, Inputs: []Tensor{{
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
	w.send(&Run{Round: 1, Batch: 7, End: 1, Size: 2, Queries: []QueryTensors{w.query(1, "abc"), w.query(2, "x")}})
	if d := expect[*Done](w); d.Round != 1 || d.Batch != 7 || d.Reached != 1 || d.Finished || d.IntermediateBytes != 1 {
		t.Fatalf("first span: %+v", d)
	}
	w.send(&Run{Round: 2, Batch: 7, Start: 1, End: 4, Size: 2})
	d := expect[*Done](w)
	if !d.Finished || d.Reached != 4 || len(d.Outputs) != 2 || d.IntermediateBytes != 0 {
		t.Fatalf("last span: %+v", d)
	}
	for i, want := range []string{"efg", "|"} {
		lease, data, err := w.outputs.Acquire(&d.Outputs[i][0])
		if err != nil || string(data) != want {
			t.Errorf("query %d: %q, %v", i, data, err)
		}
		lease.Release()
	}
	w.send(&Quit{})
	w.end(nil)
	if !w.engine.closed {
		t.Error("the engine was not closed")
	}
}

// Frames that wait in the socket are all answered, in order.
func TestServeTakesRunsAhead(t *testing.T) {
	w := startLoaded(t, nil)
	w.send(&Run{Round: 1, Batch: 1, End: 2, Size: 1, Queries: []QueryTensors{w.query(1, "a")}})
	w.send(&Run{Round: 2, Batch: 2, End: 4, Size: 1, Queries: []QueryTensors{w.query(2, "b")}})
	w.send(&Run{Round: 3, Batch: 1, Start: 2, End: 4, Size: 1})
	for round := uint64(1); round <= 3; round++ {
		if d := expect[*Done](w); d.Round != round {
			t.Fatalf("round %d: %+v", round, d)
		}
	}
}

func TestServeStops(t *testing.T) {
	w := startLoaded(t, func(w *workerTest) {
		w.engine.onStep = func(op int) {
			if op == 1 {
				w.outputs.Stop(5)
			}
		}
	})
	w.send(&Run{Batch: 1, End: 4, Size: 1, Stop: 5, Queries: []QueryTensors{w.query(1, "a")}})
	if d := expect[*Done](w); d.Reached != 2 || d.Finished {
		t.Fatalf("stopped run: %+v", d)
	}
	// The next run has another word and is not stopped; nor is the batch gone.
	w.send(&Run{Batch: 1, Start: 2, End: 4, Size: 1, Stop: 6})
	if d := expect[*Done](w); !d.Finished {
		t.Fatalf("run after the stop: %+v", d)
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
		run  Run
		want error
	}{
		{"unknown batch", Run{Batch: 9, Start: 1, End: 2}, ErrUnknownBatch},
		{"beyond the last operator", Run{Batch: 9, End: 5, Queries: []QueryTensors{inside}}, ErrSpanOrder},
		{"input outside", Run{Batch: 9, End: 1, Queries: []QueryTensors{outside}}, ErrInput},
		{"input misshapen", Run{Batch: 9, End: 1, Queries: []QueryTensors{misshapen}}, ErrInput},
	}
	for _, c := range bad {
		w.send(&c.run)
		if f := expect[*Failed](w); !errors.Is(f.Err(), c.want) || f.Batch != 9 {
			t.Errorf("%s: %v", c.name, f.Err())
		}
	}
	for _, second := range []Run{
		{Batch: 1, End: 1, Queries: []QueryTensors{inside}}, // exists
		{Batch: 1, Start: 2, End: 3},                        // stands at 1
	} {
		w.send(&Run{Batch: 1, End: 1, Queries: []QueryTensors{inside}})
		expect[*Done](w)
		w.send(&second)
		if f := expect[*Failed](w); !errors.Is(f.Err(), ErrBatchExists) && !errors.Is(f.Err(), ErrSpanOrder) {
			t.Errorf("run of [%d, %d): %v", second.Start, second.End, f.Err())
		}
	}
	w.send(&Quit{})
	w.end(nil)
	if len(w.engine.batches) != 0 {
		t.Error("a batch that failed is still there")
	}
}

func TestServeReleasesFailedBatches(t *testing.T) {
	for _, method := range []string{"start", "run", "finish"} {
		w := startLoaded(t, func(w *workerTest) {
			w.engine.fail[method] = fmt.Errorf("told to: %w", ErrMemory)
		})
		for range 100 { // more than the output arena holds at once
			w.send(&Run{Batch: 1, End: 4, Queries: []QueryTensors{w.query(1, "0123456789")}})
			if f := expect[*Failed](w); !errors.Is(f.Err(), ErrMemory) {
				t.Fatalf("%s: %v", method, f.Err())
			}
		}
		w.send(&Quit{})
		w.end(nil)
		if len(w.engine.batches) != 0 {
			t.Errorf("%s: a batch is left", method)
		}
	}
}

func TestServeRelease(t *testing.T) {
	w := startLoaded(t, nil)
	w.send(&Release{Batch: 3}) // not there: nothing happens
	w.send(&Run{Batch: 1, End: 1, Queries: []QueryTensors{w.query(1, "a")}})
	expect[*Done](w)
	w.send(&Release{Batch: 1})
	w.send(&Run{Batch: 1, Start: 1, End: 2})
	if f := expect[*Failed](w); !errors.Is(f.Err(), ErrUnknownBatch) {
		t.Fatal(f.Err())
	}
}

func TestServeOutputArenaFull(t *testing.T) {
	w := startLoaded(t, nil)
	run := &Run{Batch: 1, End: 4, Queries: []QueryTensors{w.query(1, string(make([]byte, 1<<14)))}}
	var held []Lease
	for {
		w.send(run)
		kind, payload, err := w.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == KindFailed {
			var f Failed
			if f.Decode(payload); !errors.Is(f.Err(), ErrArenaFull) {
				t.Fatal(f.Err())
			}
			break
		}
		var d Done
		if err := d.Decode(payload); err != nil {
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
	if d := expect[*Done](w); !d.Finished {
		t.Errorf("after a release: %+v", d)
	}
}

func TestServeLoadFails(t *testing.T) {
	told := errors.New("no such model")
	w := startWorker(t, func(LoadSpec, ProgressFunc) (Engine, error) { return nil, told })
	w.send(&Load{})
	if f := expect[*LoadFailed](w); f.Message != told.Error() {
		t.Errorf("message %q", f.Message)
	}
	w.end(told)
}

func TestServeProgressIsThinnedOut(t *testing.T) {
	specs := make(chan LoadSpec, 1)
	w := startWorker(t, func(spec LoadSpec, progress ProgressFunc) (Engine, error) {
		specs <- spec
		for i := range int64(1001) {
			progress("read", i, 1000)
		}
		progress("cut", 0, 0)
		return newFakeEngine(), nil
	})
	w.send(&Load{Spec: LoadSpec{Service: "s"}})
	var seen []Progress
	for {
		kind, payload, err := w.frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind == KindReady {
			break
		}
		var p Progress
		if err := p.Decode(payload); err != nil {
			t.Fatal(err)
		}
		seen = append(seen, p)
	}
	if len(seen) > 500 || !slices.Contains(seen, Progress{"read", 0, 1000}) ||
		!slices.Contains(seen, Progress{"read", 1000, 1000}) || !slices.Contains(seen, Progress{"cut", 0, 0}) {
		t.Errorf("%d messages of progress", len(seen))
	}
	if spec := <-specs; spec.Service != "s" {
		t.Errorf("spec: %+v", spec)
	}
}

func TestServeEndsWithItsSocket(t *testing.T) {
	w := startLoaded(t, nil)
	unix.Shutdown(w.socket.fd, unix.SHUT_RDWR)
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
		"reply":           {frame(1, byte(KindDone)), ErrUnexpectedKind},
		"unknown kind":    {frame(1, 200), ErrUnexpectedKind},
		"second load":     {frame(3, byte(KindLoad), '{', '}'), ErrUnexpectedKind},
		"short run":       {frame(2, byte(KindRun), 1), ErrMessage},
		"short release":   {frame(2, byte(KindRelease), 1), ErrMessage},
		"frame too large": {frame(1<<31, 1), ErrFrameSize},
	} {
		w := startLoaded(t, nil)
		if err := w.socket.write(c.bytes); err != nil {
			t.Fatal(name, err)
		}
		w.end(c.want)
	}
	w := startWorker(t, func(LoadSpec, ProgressFunc) (Engine, error) { panic("was never told to load") })
	w.send(&Release{})
	w.end(ErrUnexpectedKind)
}

func TestServeRefusesSmallMemory(t *testing.T) {
	file, err := newMemory("small", controlBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := openOutputArena(file.Fd()); !errors.Is(err, ErrArenaSize) {
		t.Error(err)
	}
}

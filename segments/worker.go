package segments

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
)

// WorkerFiles are the descriptors that a worker works with.
type WorkerFiles struct {
	Socket  uintptr // blocking, connected to the daemon
	Inputs  uintptr // of an InputArena
	Outputs uintptr // of an Outputs
}

// progressInterval is the shortest time between two messages of progress in
// the same phase.
const progressInterval = 50 * time.Millisecond

// Serve is the worker's main loop: it loads the model that the daemon names
// and runs spans in the order in which they come, until the daemon says so or
// closes the socket. One thread does all of it, with blocking reads.
func Serve(files WorkerFiles, load LoadFunc) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w, err := newWorker(files)
	if err != nil {
		return err
	}
	defer w.close()
	if err := w.start(load); err != nil {
		return err
	}
	for {
		kind, payload, err := w.frames.Next()
		if err != nil {
			return atEnd(err)
		}
		if kind == KindQuit {
			return nil
		}
		if err := w.handle(kind, payload); err != nil {
			return err
		}
	}
}

// atEnd makes the orderly end of the stream no error.
func atEnd(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("segments: read from daemon: %w", err)
}

// worker is the state of a worker process.
type worker struct {
	socket  socket
	frames  *FrameReader
	inputs  []byte // read-only
	outputs *outputArena
	engine  Engine
	end     int // operators of the model
	batches map[models.BatchID]*workerBatch
	run     Run // memory that every run uses again

	// Progress may come from any goroutine of the engine.
	mu struct {
		sync.Mutex
		frame []byte
	}
}

// workerBatch is a batch from its first run to its last.
type workerBatch struct {
	at      int              // the operator that runs next
	outputs [][]OutputTensor // of every query, empty until the batch finishes
}

func newWorker(files WorkerFiles) (*worker, error) {
	w := &worker{socket: socket{fd: int(files.Socket)}, batches: make(map[models.BatchID]*workerBatch)}
	w.frames = NewFrameReader(&w.socket)
	size, err := memoryBytes(files.Inputs)
	if err != nil {
		return nil, err
	}
	if w.inputs, err = mapMemory(files.Inputs, 0, size, unix.PROT_READ); err != nil {
		return nil, err
	}
	if w.outputs, err = openOutputArena(files.Outputs); err != nil {
		unmapMemory(w.inputs)
		return nil, err
	}
	return w, nil
}

func (w *worker) close() {
	if w.engine != nil {
		if err := w.engine.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "overlapd worker: close:", err)
		}
	}
	w.outputs.close()
	unmapMemory(w.inputs)
}

// start greets the daemon and loads the model.
func (w *worker) start(load LoadFunc) error {
	if err := w.send(&Hello{Protocol: ProtocolVersion, PID: os.Getpid()}); err != nil {
		return err
	}
	kind, payload, err := w.frames.Next()
	if err != nil {
		return atEnd(err)
	}
	if kind != KindLoad {
		return fmt.Errorf("%w: %s before load", ErrUnexpectedKind, kind)
	}
	var message Load
	if err := message.Decode(payload); err != nil {
		return err
	}
	progress := w.progress()
	engine, err := load(message.Spec, progress)
	if err != nil {
		if serr := w.send(&LoadFailed{Code: loadCodeOf(err), Message: err.Error()}); serr != nil {
			return errors.Join(err, serr)
		}
		return fmt.Errorf("%w: %w", ErrLoadFailed, err)
	}
	w.engine = engine
	w.pin(progress)
	w.socket.poll = time.Duration(message.Spec.PollNanos)
	info := engine.Info()
	w.end = len(info.Operators)
	return w.send(&Ready{Info: info})
}

// pin asks the engine to keep the shared memory in place. What cannot be pinned
// is copied more slowly, and that is all.
func (w *worker) pin(progress ProgressFunc) {
	p, ok := w.engine.(pinner)
	if !ok {
		return
	}
	progress("pin", 0, 1)
	for _, err := range []error{p.Pin(w.inputs, true), p.Pin(w.outputs.mapped, false)} {
		if err != nil {
			fmt.Fprintln(os.Stderr, "overlapd worker: warning:", err)
		}
	}
}

// progress returns a ProgressFunc that passes on what is new or worth seeing.
func (w *worker) progress() ProgressFunc {
	var mu sync.Mutex
	var phase string
	var last time.Time
	return func(p string, done, total int64) {
		mu.Lock()
		defer mu.Unlock()
		if p == phase && done != total && time.Since(last) < progressInterval {
			return
		}
		phase, last = p, time.Now()
		// If the daemon is gone the main loop finds out.
		_ = w.send(&Progress{Phase: p, Done: done, Total: total})
	}
}

func (w *worker) handle(kind Kind, payload []byte) error {
	switch kind {
	case KindRun:
		if err := w.run.Decode(payload); err != nil {
			return err
		}
		return w.answer(&w.run)
	case KindRelease:
		var m Release
		if err := m.Decode(payload); err != nil {
			return err
		}
		w.forget(m.Batch)
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnexpectedKind, kind)
}

// answer does a run and sends Done or Failed. An error that ends the worker is
// sent, and then returned.
func (w *worker) answer(r *Run) error {
	begin := time.Now()
	done := Done{Round: r.Round, Batch: r.Batch}
	err := w.perform(r, &done)
	if err == nil {
		done.Nanos = int64(time.Since(begin))
		if t, ok := w.engine.(deviceTimer); ok {
			done.DeviceNanos = int64(t.DeviceTime())
		}
		done.IntermediateBytes = w.engine.IntermediateBytes()
		return w.send(&done)
	}
	w.forget(r.Batch)
	serr := w.send(&Failed{Round: r.Round, Batch: r.Batch, Code: codeOf(err), Message: err.Error()})
	if ends(err) {
		return fmt.Errorf("segments: the worker ends: %w", errors.Join(err, serr))
	}
	return serr
}

func (w *worker) perform(r *Run, done *Done) error {
	if r.End > w.end {
		return fmt.Errorf("%w: [%d, %d) of %d operators", ErrSpanOrder, r.Start, r.End, w.end)
	}
	batch, err := w.batch(r)
	if err != nil {
		return err
	}
	batch.at, err = w.engine.Run(r.Batch, r.Start, r.End, w.outputs.control.stop(r.Stop))
	if err != nil {
		return err
	}
	done.Reached = batch.at
	if batch.at < w.end {
		return nil
	}
	if err := w.engine.Finish(r.Batch, w.out(batch)); err != nil {
		return err
	}
	delete(w.batches, r.Batch)
	done.Finished, done.Outputs = true, batch.outputs
	return nil
}

// batch returns the batch of a run, which it starts if the run has queries.
func (w *worker) batch(r *Run) (*workerBatch, error) {
	batch, exists := w.batches[r.Batch]
	switch {
	case len(r.Queries) > 0 && exists:
		return nil, fmt.Errorf("batch %d: %w", r.Batch, ErrBatchExists)
	case len(r.Queries) > 0:
		return w.startBatch(r)
	case !exists:
		return nil, fmt.Errorf("batch %d: %w", r.Batch, ErrUnknownBatch)
	case batch.at != r.Start:
		return nil, fmt.Errorf("%w: start at %d, batch %d stands at %d", ErrSpanOrder, r.Start, r.Batch, batch.at)
	}
	return batch, nil
}

func (w *worker) startBatch(r *Run) (*workerBatch, error) {
	queries, err := w.views(r.Queries)
	if err != nil {
		return nil, err
	}
	batch := &workerBatch{outputs: make([][]OutputTensor, len(queries))}
	w.batches[r.Batch] = batch
	return batch, w.engine.Start(r.Batch, queries)
}

// views returns the queries with their inputs mapped, in memory of their own:
// the engine keeps them for as long as the batch lives.
func (w *worker) views(queries []QueryTensors) ([]QueryInputs, error) {
	views := make([]QueryInputs, len(queries))
	for i, q := range queries {
		views[i] = QueryInputs{ID: q.ID, Inputs: make([]TensorView, len(q.Inputs))}
		for j, t := range q.Inputs {
			data := window(w.inputs, t.Offset, t.Bytes)
			if data == nil || !fits(t.Type, t.Shape, t.Bytes) {
				return nil, fmt.Errorf("%w: input %d is %s%v in %d bytes at %d", ErrInput, j, t.Type, t.Shape, t.Bytes, t.Offset)
			}
			views[i].Inputs[j] = TensorView{Type: t.Type, Shape: append([]int64(nil), t.Shape...), Data: data}
		}
	}
	return views, nil
}

// out returns the function through which the engine gets memory for the
// outputs of a batch.
func (w *worker) out(batch *workerBatch) OutputFunc {
	return func(query, output int, t models.DataType, shape []int64, bytes int64) ([]byte, error) {
		if query < 0 || query >= len(batch.outputs) || output != len(batch.outputs[query]) {
			return nil, fmt.Errorf("%w: output %d of query %d is out of order", ErrOutput, output, query)
		}
		lease, data, err := w.outputs.alloc(t, append([]int64(nil), shape...), bytes)
		if err != nil {
			return nil, err
		}
		batch.outputs[query] = append(batch.outputs[query], lease)
		return data, nil
	}
}

// forget drops a batch that the daemon will hear no more of, with the outputs
// it may have got.
func (w *worker) forget(id models.BatchID) {
	batch, ok := w.batches[id]
	if !ok {
		return
	}
	delete(w.batches, id)
	w.engine.Release(id)
	for _, outputs := range batch.outputs {
		for _, out := range outputs {
			w.outputs.abandon(out)
		}
	}
}

func (w *worker) send(m Message) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	frame, err := AppendFrame(w.mu.frame[:0], m)
	if err != nil {
		return err
	}
	w.mu.frame = frame
	return w.socket.write(frame)
}

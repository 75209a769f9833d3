package worker

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// ErrLoadFailed is returned by Serve when the model could not be loaded. The daemon has
// received the reason.
var ErrLoadFailed = errors.New("the model could not be loaded")

// Files are the descriptors that a worker uses.
type Files struct {
	// Socket is the connection to the daemon.
	Socket *os.File

	// Inputs is a wire.InputArena and Outputs a wire.Outputs. Moves comes from
	// wire.NewMoveArena, and is used only if batches of the service move.
	Inputs  uintptr
	Outputs uintptr
	Moves   uintptr
}

// progressInterval is the minimum time between two progress messages of the same phase.
// It keeps well below the rate that the daemon accepts.
const progressInterval = 50 * time.Millisecond

// Serve is the worker's main loop. It loads the model that the daemon names, then runs
// spans in the order of their arrival until the daemon sends Quit or closes the socket.
// All of that happens on the calling goroutine, unless there are spans to run at once. The
// caller still owns the files.
func Serve(files Files, load LoadFunc) (err error) {
	w, err := newWorker(files)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	if err := w.start(load); err != nil {
		return err
	}
	w.serve()
	w.turns.loops.Wait()
	_, err = w.turns.over()
	return err
}

// serve reads messages and performs them until the worker ends.
func (w *worker) serve() {
	var m messages
	if len(w.cpus.cores) > 0 {
		runtime.LockOSThread()
	}
	here := home{cpus: &w.cpus}
	w.turns.take()
	defer w.turns.reading.Unlock()
	for {
		if over, _ := w.turns.over(); over {
			return
		}
		beside, err := w.turn(&m, &here)
		if err != nil {
			w.turns.stop(err)
		}
		if !beside {
			continue
		}
		w.turns.pass(m.run.Batch, w.units, w.serve)
		begin := time.Now()
		here.stay(m.run.On)
		if err := w.answer(&m.run); err != nil {
			w.turns.stop(err) // before the one that reads finds the end of the stream
			w.endRead()
		}
		w.turns.end(m.run.Batch, time.Since(begin))
		w.turns.take()
	}
}

// turn reads a message and performs it. It does not perform a run beside others, but
// reports it, when nothing that came before it stands in its way.
func (w *worker) turn(m *messages, here *home) (beside bool, err error) {
	if idle, took := w.turns.idle(); idle || took <= w.poll {
		w.socket.Poll = w.poll
	} else {
		w.socket.Poll = 0 // polling would slow down the runs
	}
	kind, payload, err := w.frames.Next()
	if err != nil || kind == wire.KindQuit {
		w.turns.stop(atEnd(err))
		return false, nil
	}
	w.turns.used = true
	return w.handle(m, here, kind, payload)
}

// endRead ends the turn of a goroutine that waits for a message.
func (w *worker) endRead() {
	if raw, err := w.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RD) }) // if it fails, the daemon has closed the socket
	}
}

// atEnd returns nil for the orderly end of the stream.
func atEnd(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("worker: read from daemon: %w", err)
}

// worker is the state of one call of Serve.
type worker struct {
	socket  *wire.Socket
	frames  *wire.FrameReader
	inputs  []byte
	outputs *wire.WorkerOutputs

	// moves is nil if batches do not move.
	moves  []byte
	engine Engine

	// end is the number of operators of the model.
	end int

	// pinned is set if a device may have pinned the outputs, whose pages must then
	// stay in place.
	pinned bool

	// units is how many runs may be in progress at once, and poll how long the socket is
	// polled.
	units int

	cpus cpus
	poll time.Duration

	// These are mapped only once the model is known, because that decides how.
	inputsFD, movesFD uintptr

	turns turns

	// mu guards the list of batches, and the allocation of outputs. A batch itself
	// belongs to the goroutine that performs a message for it.
	mu struct {
		sync.Mutex
		batches map[models.BatchID]*batch
	}

	// sending guards sending, because any goroutine of the engine may report progress.
	sending struct {
		sync.Mutex
		frame []byte
	}
}

// messages are reused for every message of their kind that a goroutine reads.
type messages struct {
	run  wire.Run
	move wire.Move
}

// batch is a batch from its first run to its last.
type batch struct {
	// at is the operator that runs next.
	at int

	// outputs holds the outputs of each query, which out adds as the batch finishes.
	outputs [][]wire.OutputTensor
	out     OutputFunc
}

func newWorker(files Files) (*worker, error) {
	socket, err := wire.NewSocket(files.Socket)
	if err != nil {
		return nil, err
	}
	w := &worker{socket: socket, frames: wire.NewFrameReader(socket), inputsFD: files.Inputs, movesFD: files.Moves}
	w.mu.batches = make(map[models.BatchID]*batch)
	w.turns.init()
	if w.outputs, err = wire.OpenOutputs(files.Outputs); err != nil {
		return nil, err
	}
	return w, nil
}

func (w *worker) close() error {
	var err error
	if w.engine != nil {
		err = w.engine.Close()
	}
	wire.Unmap(w.inputs)
	wire.Unmap(w.moves)
	return errors.Join(err, w.outputs.Close())
}

// start sends Hello, loads the model, and answers with Info or Failed.
func (w *worker) start(load LoadFunc) error {
	if err := w.send(&wire.Hello{Protocol: wire.ProtocolVersion, PID: os.Getpid()}); err != nil {
		return err
	}
	kind, payload, err := w.frames.Next()
	if err != nil {
		return atEnd(err)
	}
	if kind != wire.KindLoad {
		return fmt.Errorf("%w: %s before load", wire.ErrUnexpectedKind, kind)
	}
	var spec wire.LoadSpec
	if err := wire.Decode(payload, &spec); err != nil {
		return err
	}
	if w.inputs, err = wire.MapArena(w.inputsFD, spec.CUDA != nil); err != nil {
		return fmt.Errorf("inputs: %w", err)
	}
	if spec.Moves {
		if w.moves, err = wire.MapArena(w.movesFD, true); err != nil {
			return err
		}
	}
	w.engine, err = load(spec, Memory{Inputs: w.inputs, Outputs: w.outputs.Memory(), Moves: w.moves}, w.progress())
	if err != nil {
		return errors.Join(fmt.Errorf("%w: %w", ErrLoadFailed, err), w.send(wire.Fail(0, 0, err)))
	}
	w.poll, w.units, w.pinned = time.Duration(spec.PollNanos), spec.Units, spec.CUDA != nil
	w.cpus.use(spec.Cores)
	if w.pinned {
		w.units = 1
	}
	if spec.TrimNanos > 0 {
		if err := w.socket.OnIdle(time.Duration(spec.TrimNanos), w.trim); err != nil {
			return err
		}
	}
	info := w.engine.Info()
	w.end = len(info.Operators)
	return w.send(&info)
}

// progress returns a ProgressFunc that sends the begin and the end of each phase, and
// what lies between them at a limited rate.
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
		// If the daemon is gone, the main loop notices.
		_ = w.send(&wire.Progress{Phase: p, Done: done, Total: total})
	}
}

// trim returns memory to the system after an idle time.
func (w *worker) trim() {
	if idle, _ := w.turns.idle(); idle && w.turns.used {
		w.turns.used = false
		w.engine.Trim()
		w.outputs.SetHeld(w.engine.IntermediateBytes())
		if !w.pinned {
			_ = w.outputs.Trim() // on failure the pages merely stay
		}
	}
}

// handle processes one message, once what it must follow has ended. A run beside others is
// left to the caller. handle returns an error if the worker must end: the daemon broke the
// protocol, or an answer could not be sent.
func (w *worker) handle(m *messages, here *home, kind wire.Kind, payload []byte) (beside bool, err error) {
	switch kind {
	case wire.KindRun:
		if err := wire.Decode(payload, &m.run); err != nil {
			return false, err
		}
		if w.units > 1 && m.run.Share > 0 {
			w.turns.await(m.run.Batch)
			return true, nil
		}
		w.turns.awaitAll()
		here.stay(m.run.On)
		return false, w.answer(&m.run)
	case wire.KindMove:
		if err := wire.Decode(payload, &m.move); err != nil {
			return false, err
		}
		w.turns.await(m.move.Batch)
		return false, w.step(&m.move)
	case wire.KindRelease:
		var r wire.Release
		if err := wire.Decode(payload, &r); err != nil {
			return false, err
		}
		w.turns.await(r.Batch)
		w.forget(r.Batch)
		w.sending.Lock()
		defer w.sending.Unlock()
		w.outputs.SetHeld(w.engine.IntermediateBytes())
		return false, nil
	}
	return false, fmt.Errorf("%w: %s", wire.ErrUnexpectedKind, kind)
}

// answer performs a run, and sends Done or Failed. It returns an error if the worker
// must end; that error was sent as well.
func (w *worker) answer(r *wire.Run) error {
	begin := time.Now()
	done := wire.Done{Round: r.Round, Batch: r.Batch}
	err := w.perform(r, &done)
	done.Nanos = cmp.Or(done.Nanos, int64(time.Since(begin)))
	return w.reply(r.Round, r.Batch, &done, err)
}

// reply sends the answer to a run or to a step of a move, or its failure. It returns
// an error if the worker must end.
func (w *worker) reply(round uint64, batch models.BatchID, answer wire.Message, err error) error {
	if errors.Is(err, ErrKilled) {
		return err
	}
	if err != nil {
		w.forget(batch)
		answer = wire.Fail(round, batch, err)
	}
	serr := w.sendWith(answer, func() { w.outputs.SetHeld(w.engine.IntermediateBytes()) })
	if wire.Ends(err) {
		return fmt.Errorf("worker: exiting: %w", errors.Join(err, serr))
	}
	return serr
}

// perform runs a span and fills in the answer.
func (w *worker) perform(r *wire.Run, done *wire.Done) error {
	if r.End > w.end {
		return fmt.Errorf("%w: [%d, %d) of %d operators", wire.ErrSpanOrder, r.Start, r.End, w.end)
	}
	if len(r.Queries) > max(r.Size, 1) {
		return w.backToBack(r, done)
	}
	b, err := w.batch(r)
	if err != nil {
		return err
	}
	ran, err := w.engine.Run(r.Batch, r.Start, r.End, r.Share, w.outputs.Stop(r.Stop), b.out)
	if err != nil {
		return err
	}
	b.at = ran.Reached
	done.Reached = ran.Reached
	done.Nanos, done.DeviceNanos = int64(ran.Took), int64(ran.DeviceTime)
	if b.at == w.end {
		w.drop(r.Batch)
		done.Outputs = b.outputs
	}
	return nil
}

// backToBack executes the queries of a batch back to back, each as a batch of its own for the
// engine. If it is stopped, the whole batch counts as not begun and is forgotten; the
// daemon may run it again.
func (w *worker) backToBack(r *wire.Run, done *wire.Done) error {
	if _, exists := w.known(r.Batch); exists || r.End != w.end {
		return fmt.Errorf("%w: back-to-back execution to %d of %d operators as batch %d, which exists is %t", wire.ErrSpanOrder, r.End, w.end, r.Batch, exists)
	}
	if err := w.find(r.Queries); err != nil {
		return err
	}
	b := w.newBatch(r.Batch, 0, len(r.Queries))
	for i := range r.Queries {
		if err := w.engine.Start(r.Batch, r.Queries[i:i+1]); err != nil {
			return err
		}
		ran, err := w.engine.Run(r.Batch, 0, r.End, r.Share, w.outputs.Stop(r.Stop),
			func(query, output int, t models.DataType, shape []int64, bytes int64) ([]byte, error) {
				return b.out(i+query, output, t, shape, bytes)
			})
		if err != nil {
			return err
		}
		done.Nanos += int64(ran.Took)
		done.DeviceNanos += int64(ran.DeviceTime)
		if ran.Reached < w.end {
			w.forget(r.Batch)
			return nil
		}
	}
	w.drop(r.Batch)
	done.Reached, done.Outputs = w.end, b.outputs
	return nil
}

// batch returns the batch of a run. A run with queries starts it.
func (w *worker) batch(r *wire.Run) (*batch, error) {
	b, exists := w.known(r.Batch)
	switch {
	case len(r.Queries) > 0 && exists:
		return nil, fmt.Errorf("batch %d: %w", r.Batch, wire.ErrBatchExists)
	case len(r.Queries) > 0:
		if err := w.find(r.Queries); err != nil {
			return nil, err
		}
		return w.newBatch(r.Batch, 0, len(r.Queries)), w.engine.Start(r.Batch, r.Queries)
	case !exists:
		return nil, fmt.Errorf("batch %d: %w", r.Batch, wire.ErrUnknownBatch)
	case b.at != r.Start:
		return nil, fmt.Errorf("%w: start at %d, but batch %d is at %d", wire.ErrSpanOrder, r.Start, r.Batch, b.at)
	}
	return b, nil
}

func (w *worker) newBatch(id models.BatchID, at, queries int) *batch {
	b := &batch{at: at, outputs: make([][]wire.OutputTensor, queries)}
	b.out = w.out(b)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.batches[id] = b
	return b
}

// known returns a batch that the worker holds.
func (w *worker) known(id models.BatchID) (b *batch, exists bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	b, exists = w.mu.batches[id]
	return b, exists
}

// drop removes a batch that the engine has forgotten.
func (w *worker) drop(id models.BatchID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.mu.batches, id)
}

// find sets the data of the inputs of queries.
func (w *worker) find(queries []wire.QueryTensors) error {
	for _, q := range queries {
		if err := findIn(w.inputs, q.Inputs, wire.ErrInput); err != nil {
			return err
		}
	}
	return nil
}

// findIn sets the data of tensors in memory. The error wraps invalid.
func findIn(memory []byte, tensors []models.Tensor, invalid error) error {
	for i := range tensors {
		if t := &tensors[i]; !wire.Find(t, memory) {
			return fmt.Errorf("%w: tensor %d is %s%v in %d bytes at %d", invalid, i, t.Type, t.Shape, t.Bytes, t.Offset)
		}
	}
	return nil
}

// out returns the function that allocates the outputs of a batch. If the only query of a
// batch does not fit even though no other output is leased, it never will.
func (w *worker) out(b *batch) OutputFunc {
	return func(query, output int, t models.DataType, shape []int64, bytes int64) ([]byte, error) {
		if query < 0 || query >= len(b.outputs) || output != len(b.outputs[query]) {
			return nil, fmt.Errorf("%w: output %d of query %d is out of order", wire.ErrOutput, output, query)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		lease, data, err := w.outputs.Alloc(t, append([]int64(nil), shape...), bytes)
		if errors.Is(err, wire.ErrArenaFull) && len(b.outputs) == 1 && w.outputs.Leased() == len(b.outputs[0]) {
			return nil, fmt.Errorf("%w: output %d of %d bytes: %w; request fewer outputs, or raise worker.output_bytes", wire.ErrTooLarge, output, bytes, err)
		}
		if err != nil {
			return nil, err
		}
		b.outputs[query] = append(b.outputs[query], lease)
		return data, nil
	}
}

// forget drops a batch, and releases outputs of it that were not yet reported to the
// daemon.
func (w *worker) forget(id models.BatchID) {
	b, ok := w.known(id)
	if !ok {
		return
	}
	w.drop(id)
	w.engine.Release(id)
	for _, outputs := range b.outputs {
		for _, out := range outputs {
			w.outputs.Abandon(out)
		}
	}
}

func (w *worker) send(m wire.Message) error { return w.sendWith(m, func() {}) }

// sendWith calls before and sends a message. Calls of it do not overlap.
func (w *worker) sendWith(m wire.Message, before func()) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	before()
	frame, err := wire.AppendFrame(w.sending.frame[:0], m)
	if err != nil {
		return err
	}
	w.sending.frame = frame
	_, err = w.socket.Write(frame)
	return err
}

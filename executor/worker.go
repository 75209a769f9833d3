package executor

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// worker is one worker process, from its start until it has been reaped.
type worker struct {
	service *service
	process process
	conn    *conn
	frames  *wire.FrameReader
	outputs *wire.Outputs
	info    wire.Info
	begin   time.Time

	// fly wakes the reader when a run is in flight. lost is closed by lose, and
	// read when the reader has ended.
	fly  chan struct{}
	lost chan struct{}
	read chan struct{}

	// landing is the task whose answer the reader records.
	landing flight

	mu struct {
		sync.Mutex

		// cause is why the worker is lost, nil while it lives.
		cause error

		// loads is set while the worker owes an answer to a model it was sent.
		loads bool

		// dying is the reason the worker itself gave for exiting.
		dying error

		// deaf is set once a message could not be sent.
		deaf    bool
		flights flights
		cargo

		// frame is the buffer that every send reuses.
		frame []byte

		// took is the time of the last run in the engine.
		took time.Duration
	}
}

// newWorker starts a worker for s, with its waiter and its writer. load or listen
// acts as the reader.
func newWorker(s *service) (*worker, error) {
	outputs, err := wire.NewOutputs(s.spec.OutputBytes)
	if err != nil {
		return nil, err
	}
	opts := &s.executor.opts
	conn, other, err := newConn(opts.Inside == nil)
	if err != nil {
		outputs.Close()
		return nil, err
	}
	w := &worker{
		service: s, conn: conn, frames: wire.NewFrameReader(conn.Socket), outputs: outputs,
		begin: time.Now(), fly: make(chan struct{}, 1), lost: make(chan struct{}), read: make(chan struct{}),
	}
	if y := s.executor.yielding; y != nil {
		conn.Yield = y.yield
	}
	w.mu.batches = make(map[models.BatchID]held)
	if s.spec.Load.CUDA == nil {
		w.mu.flights.units = s.spec.Load.Units
	}
	files := []*os.File{other, s.spec.Inputs.File(), outputs.File()}
	if s.spec.Moves != nil {
		files = append(files, s.spec.Moves.File())
	}
	if opts.Inside != nil {
		w.process = startInside(opts.Inside, s.spec.ID, files)
	} else {
		w.process, err = startChild(opts.Command, s.spec.Env, opts.Affinity, files, s.output)
		other.Close()
		outputs.CloseFile()
	}
	if err != nil {
		outputs.Close()
		conn.close()
		return nil, err
	}
	s.start(func() {
		<-w.process.Done()
		w.lose(ErrExited)
	})
	s.start(func() { conn.write(w.lost) })
	return w, nil
}

// next returns the next frame. It maps the end of the stream to ErrExited, and any
// other fault to ErrProtocol.
func (w *worker) next() (wire.Kind, []byte, error) {
	kind, payload, err := w.frames.Next()
	switch {
	case errors.Is(err, io.EOF):
		err = ErrExited
	case err != nil:
		err = broken(err)
	}
	return kind, payload, err
}

func broken(err error) error { return fmt.Errorf("%w: %w", ErrProtocol, err) }

// lose declares the worker lost and kills it. The first cause counts, except that
// a more specific one replaces ErrExited.
func (w *worker) lose(cause error) {
	w.mu.Lock()
	if cause == ErrExited && w.mu.dying != nil { //nolint:errorlint // an error that wraps ErrExited is more specific
		cause = w.mu.dying
	}
	first := w.mu.cause == nil
	if first || w.mu.cause == ErrExited { //nolint:errorlint // an error that wraps ErrExited is more specific
		w.mu.cause = cause
	}
	busy := len(w.mu.flights.list) > 0 || w.mu.loads
	w.mu.Unlock()
	if !first {
		return
	}
	warn := w.service.executor.opts.BeforeKill
	if warn == nil || !busy || errors.Is(cause, ErrExited) {
		w.process.Kill()
		w.conn.shutdown()
		close(w.lost)
		return
	}
	// Register the goroutine before lost is closed: nobody may wait for the
	// service's goroutines while one is still to be added.
	w.service.start(func() {
		<-w.lost
		warn(w.service.spec.ID, w.process.PID())
		w.process.Kill()
	})
	w.conn.shutdown()
	close(w.lost)
}

func (w *worker) cause() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.cause
}

// run sends a span, or fails it immediately if it cannot run. It reports whether
// the span was sent.
func (w *worker) run(r *round, index int, request *SpanRequest) bool {
	span := request.Span
	if span.End > len(w.info.Operators) {
		r.fail(index, models.SpanFailed, fmt.Errorf("%w: [%d, %d) of %d operators", ErrBadSpan, span.Start, span.End, len(w.info.Operators)))
		return false
	}
	r.message = wire.Run{
		Round: r.outcome.Round, Batch: span.Batch, Start: span.Start, End: span.End,
		Size: span.Size, Share: cmp.Or(r.share, span.Share), Queries: request.Queries,
	}
	cores := &w.service.executor.cores
	r.message.On = cores.take(r.message.Share, len(w.service.spec.Load.Cores))
	err := w.send(flight{task: r, index: index, span: span, since: r.begin, beside: r.message.Share > 0, on: r.message.On}, &r.message, request.Queries)
	if err != nil {
		cores.give(r.message.On)
	}
	switch {
	case errors.Is(err, ErrNotReady), errors.Is(err, ErrBatchLost):
		r.fail(index, models.SpanLost, err)
	case err != nil:
		r.fail(index, models.SpanFailed, err)
	}
	return err == nil
}

// send sends a flight with its message, unless the worker cannot take it. With
// queries the worker gets the batch; without, it must hold the batch already.
func (w *worker) send(f flight, m wire.Message, queries []wire.QueryTensors) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch, known := w.mu.batches[f.span.Batch]
	switch {
	case w.mu.cause != nil:
		return ErrNotReady
	case len(queries) == 0 && !known:
		return ErrBatchLost
	case len(queries) > 0 && known && f.round() == nil: // a round may begin a batch again that was stopped before its first operator
		return fmt.Errorf("%w: batch %d is already there", ErrBadSpan, f.span.Batch)
	case len(w.mu.flights.list) == wire.StopWords:
		return ErrTooManyRounds
	}
	if len(queries) > 0 {
		batch = held{queries: queryIDs(queries)}
	}
	f.word = w.mu.flights.word()
	if run, ok := m.(*wire.Run); ok {
		run.Stop = f.word
	}
	if err := w.sendLocked(m); err != nil {
		return err
	}
	w.mu.batches[f.span.Batch] = batch
	f.queries, f.unsent = batch.queries, w.mu.deaf
	w.mu.flights.push(f, w.fly)
	return nil
}

func queryIDs(queries []wire.QueryTensors) []models.QueryID {
	ids := make([]models.QueryID, len(queries))
	for i := range queries {
		ids[i] = queries[i].ID
	}
	return ids
}

// sendLocked sends a message. It returns an error only if the message cannot be
// encoded. If the socket fails, the worker is lost, which ends its spans.
func (w *worker) sendLocked(m wire.Message) error {
	frame, err := wire.AppendFrame(w.mu.frame[:0], m)
	if err != nil {
		return err
	}
	w.mu.frame = frame
	if err := w.conn.send(frame); err != nil {
		w.mu.deaf = true
		w.service.start(func() { w.lose(fmt.Errorf("%w: %w", ErrExited, err)) })
	}
	return nil
}

// stop ends the runs of a batch at their next operator boundary and reports
// whether there was one. If grace is not 0, the worker is lost when a run has not
// ended after grace.
func (w *worker) stop(batch models.BatchID, grace time.Duration) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.cause != nil {
		return false
	}
	found := false
	for i := range w.mu.flights.list {
		if f := &w.mu.flights.list[i]; f.span.Batch == batch && f.round() != nil {
			w.stopLocked(f)
			found = true
		}
	}
	if found && grace > 0 {
		w.service.start(func() {
			if !child.Within(w.lost, grace) && w.stop(batch, 0) {
				w.blame(batch)
				w.lose(fmt.Errorf("%w: its result was no longer needed, and %v later it had not reached the end of an operator", ErrOverrun, grace))
			}
		})
	}
	return found
}

// stopRound ends the runs of a round at their next operator boundary.
func (w *worker) stopRound(r *round) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.mu.flights.list {
		if f := &w.mu.flights.list[i]; f.round() == r && w.mu.cause == nil {
			w.stopLocked(f)
		}
	}
}

// stopLocked ends a run in flight at its next operator boundary. It sets the run's
// stop word in shared memory, which the engine checks between operators.
func (w *worker) stopLocked(f *flight) {
	f.stopped = true
	w.outputs.Stop(f.word)
	if in := w.service.executor.opts.Inside; in != nil {
		in.Stopped(f.span)
	}
}

// release makes the worker forget a batch.
func (w *worker) release(batch models.BatchID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, known := w.mu.batches[batch]; !known || w.mu.cause != nil {
		return
	}
	w.mu.forget(batch, &w.mu.flights)
	_ = w.sendLocked(&wire.Release{Batch: batch}) // never too large to send
}

// quit stops what runs and asks the worker to exit.
func (w *worker) quit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.cause != nil {
		return
	}
	for i := range w.mu.flights.list {
		w.stopLocked(&w.mu.flights.list[i])
	}
	_ = w.sendLocked(&wire.Quit{}) // never too large to send
}

// runs returns the batch of the run that has been running longest, and for how long;
// 0 if there is none.
func (w *worker) runs() (batch models.BatchID, longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.mu.flights.running() {
		if ran := time.Since(f.since); ran > longest {
			batch, longest = f.span.Batch, ran
		}
	}
	return batch, longest
}

// blame records that the running span of a batch is why the worker will be lost.
func (w *worker) blame(batch models.BatchID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.mu.flights.running() {
		if f := &w.mu.flights.list[i]; f.span.Batch == batch {
			f.blamed = true
		}
	}
}

// round returns the round with this ID if one of its runs is in flight, else nil.
func (w *worker) round(id uint64) *round {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.mu.flights.list {
		if r := w.mu.flights.list[i].round(); r != nil && r.number() == id {
			return r
		}
	}
	return nil
}

// failAll ends every run in flight after the reader has ended. A run is SpanCrashed if
// it ran too long, or if it was the only one that the worker was executing. All others
// are SpanLost: they had not begun, or nobody knows which of them is at fault, or the
// cause lies outside the worker.
func (w *worker) failAll(err error) {
	outside := errors.Is(err, ErrHeld) || errors.Is(err, ErrClosed) || errors.Is(err, ErrRemoved)
	w.mu.Lock()
	failed, ran := w.mu.flights.list, w.mu.flights.begun
	w.mu.flights = flights{}
	for i := range failed {
		w.mu.blocks = append(w.mu.blocks, failed[i].block)
		if failed[i].unsent { // it never reached the worker, so it cannot have crashed it
			ran = min(ran, i)
		}
	}
	w.mu.Unlock()
	for i := range failed {
		f, status := &failed[i], models.SpanLost
		w.service.executor.cores.give(f.on)
		if !outside && (f.blamed || ran == 1 && i == 0) {
			status = models.SpanCrashed
		}
		f.task.lost(f, status, err)
	}
}

// awaitEnd waits until a killed process is gone. If that takes longer than after,
// it logs a line and continues to wait. Nothing else can end such a process, and
// until it ends it holds its memory on the device.
func (w *worker) awaitEnd(after time.Duration) {
	if child.Within(w.process.Done(), after) {
		return
	}
	w.service.output(fmt.Sprintf("(process %d was killed and has not exited after %v: it is blocked in the kernel, most likely in a driver; "+
		"see /proc/%[1]d/stack and dmesg; the service starts no new worker before the process is gone)", w.process.PID(), after))
	<-w.process.Done()
}

// errorLines is how many lines of standard error an error quotes.
const errorLines = 12

// exitError returns the cause together with the exit status of the process and the
// most relevant lines of its standard error, as far as they are known yet.
func (w *worker) exitError() error {
	cause, status := w.cause(), w.process.Status()
	if errors.Is(cause, wire.ErrModel) { // the cause is complete, and the process exited as it should
		return fmt.Errorf("worker of %s: %w", w.service.spec.Name, cause)
	}
	var exit, stderr string
	if status != "" {
		exit = " (" + status + ")"
	}
	switch {
	case !errors.Is(cause, ErrExited):
	case status == "": // not reaped yet: assume an outside kill, so that no query is blamed on a guess
		cause = fmt.Errorf("%w, or ended otherwise", ErrKilled)
	case strings.HasPrefix(status, "signal: killed"):
		cause = ErrKilled
	}
	if lines := child.Excerpt(w.process.Tail(), errorLines); lines != "" {
		stderr = "; stderr: " + lines
	}
	if libraries := w.service.spec.Load.OpLibraries; len(libraries) > 0 && errors.Is(cause, ErrExited) {
		exit += "; it ran the code of op_libraries: " + baseNames(libraries) // clients see this, so no paths
	}
	return fmt.Errorf("worker of %s: %w%s%s", w.service.spec.Name, cause, exit, stderr)
}

// baseNames returns the names of files without their folders.
func baseNames(paths []string) string {
	names := make([]string, len(paths))
	for i, path := range paths {
		names[i] = filepath.Base(path)
	}
	return strings.Join(names, ", ")
}

// task is what a worker does with a batch: a span of a round, or a step of a move.
// A worker takes tasks in order, and answers each or is lost.
type task interface {
	// number identifies the task in messages.
	number() uint64

	// answered records an answer, which is no failure, and lands the flight. An
	// error means that the worker sent something impossible.
	answered(w *worker, f *flight, answer wire.Message) error

	// lost ends a task that did not complete, once its flight has landed.
	lost(f *flight, status models.Status, err error)
}

// flight is a task that was sent and not yet answered.
type flight struct {
	task task

	// index is the position of the span in its round.
	index int

	// block is the memory that is freed once the worker has answered.
	block   block
	span    models.Span
	queries []models.QueryID

	// word is the index of the stop word, which no other flight has.
	word uint32

	// beside is set if the worker performs the task beside others.
	beside bool

	// on is the cores that it has, see [wire.Run].
	on uint64

	// since is when the worker began the task: when it was sent, or when one that it
	// had to wait for ended.
	since   time.Time
	stopped bool

	// unsent is set if the worker was already gone when the task was sent. blamed is
	// set if the task is why the worker is lost.
	unsent, blamed bool
}

// round returns the round of a span, nil for a step of a move.
func (f *flight) round() *round {
	r, _ := f.task.(*round)
	return r
}

// flights lists the tasks in flight, oldest first.
type flights struct {
	list []flight

	// units is how many of them the worker performs at once, and begun how many it
	// performs now. A worker begins tasks in order, so these are the first.
	units, begun int

	// words says which stop words are in use.
	words [wire.StopWords]bool
}

// running returns the flights that the worker performs now.
func (f *flights) running() []flight { return f.list[:f.begun] }

// word returns a free stop word. The caller has checked that there is one.
func (f *flights) word() uint32 { return uint32(slices.Index(f.words[:], false)) }

// push adds a flight and wakes the reader.
func (f *flights) push(sent flight, wake chan<- struct{}) {
	f.list = append(f.list, sent)
	f.words[sent.word] = true
	f.advance(sent.since)
	select {
	case wake <- struct{}{}:
	default:
	}
}

// remove removes the i-th flight. The time of those that the worker begins in its place
// counts from here.
func (f *flights) remove(i int) {
	f.words[f.list[i].word] = false
	f.list = slices.Delete(f.list, i, i+1)
	if i < f.begun {
		f.begun--
	}
	f.advance(time.Now())
}

// advance finds the flights that the worker begins now.
func (f *flights) advance(now time.Time) {
	for ; f.begun < len(f.list) && f.begins(&f.list[f.begun]); f.begun++ {
		f.list[f.begun].since = now
	}
}

// begins reports whether the worker begins the next flight while others run: all of them
// may run beside others, and none belongs to the same batch.
func (f *flights) begins(next *flight) bool {
	for i := range f.running() {
		if r := &f.list[i]; !r.beside || !next.beside || f.begun >= f.units || r.span.Batch == next.span.Batch {
			return false
		}
	}
	return true
}

// check returns an error if an answer is impossible for the span that was sent.
func (f *flight) check(d *wire.Done, operators int) error {
	switch {
	case d.Reached < f.span.Start || d.Reached > f.span.End:
		return fmt.Errorf("span [%d, %d) reached operator %d", f.span.Start, f.span.End, d.Reached)
	case d.Reached < f.span.End && !f.stopped:
		return fmt.Errorf("span [%d, %d) ended at operator %d without being stopped", f.span.Start, f.span.End, d.Reached)
	case f.span.Times(len(f.queries)) > 1 && d.Reached > 0 && d.Reached < operators:
		return fmt.Errorf("back-to-back execution ended at operator %d of %d", d.Reached, operators)
	case d.Finished() != (d.Reached == operators):
		return fmt.Errorf("at operator %d of %d, finished is %t", d.Reached, operators, d.Finished())
	}
	return nil
}

package executor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// lostGrace is how long the spans of a lost worker wait for the process to be
// reaped, so that their error can say how it ended. The kernel closes the socket
// late in the exit of a process, so the wait is nearly always short.
const lostGrace = 250 * time.Millisecond

// stuckAfter is how long a killed worker may take to end before the executor logs
// that it is stuck.
const stuckAfter = 10 * time.Second

// releaseInterval is how often Close and Remove check whether the last round was
// received or the last output was released.
const releaseInterval = 2 * time.Millisecond

// service is one service and its worker, if it has one.
type service struct {
	executor *Executor
	spec     ServiceSpec

	// restart requests a restart of a service that failed permanently.
	restart chan struct{}

	// rounds counts the rounds and moves with spans of this service whose outcome
	// has not been delivered.
	rounds atomic.Int32

	// threads counts every goroutine of this service.
	threads sync.WaitGroup

	// end ends the supervisor; it is nil until there is one. leaves is set once
	// Remove was called. Executor.mu guards both.
	end    context.CancelCauseFunc
	leaves bool

	gate gate

	mu struct {
		sync.Mutex
		state State

		// gone is why the service will have no worker again, nil if it may have one.
		gone error

		// worker is nil unless it is ready.
		worker *worker

		// outputs holds the arenas of this worker and of earlier ones, as long as
		// outputs in them may be leased.
		outputs []*wire.Outputs

		// moved is how many bytes the last batch of each kind took along in a move.
		moved map[kind]int64
	}
}

// Phase is the phase of a service's life.
type Phase uint8

// The phases of a service.
const (
	// Waiting: the next start is deferred by back-off or Hold.
	Waiting Phase = iota

	// Starting: a process is loading the model.
	Starting

	// Ready: spans can run.
	Ready

	// GivenUp: the service failed permanently; Restart retries immediately.
	GivenUp

	// Closed: the service was removed, or the executor is closed.
	Closed
)

func (p Phase) String() string {
	names := [...]string{Waiting: "waiting", Starting: "starting", Ready: "ready", GivenUp: "given up", Closed: "closed"}
	if int(p) < len(names) {
		return names[p]
	}
	return ""
}

// State is a snapshot of a service's worker.
type State struct {
	Phase Phase

	// PID is 0 if there is no process.
	PID int

	// Starts is how many processes have been started so far.
	Starts int

	// Err is why the last worker was lost, nil if none was.
	Err error

	// InFlight is how many runs were sent and not yet answered.
	InFlight int

	// IntermediateBytes is how much memory the worker says it holds for batches.
	IntermediateBytes int64

	// OutputLeases is how many outputs have not been released.
	OutputLeases int

	// ResidentBytes is the resident set of the process, 0 if it is not known.
	ResidentBytes int64
}

// newService checks a spec and returns a service without a supervisor.
func newService(e *Executor, spec ServiceSpec) (*service, error) {
	// Each worker gets a new arena, so without this check a bad size would be
	// reported only when the worker starts.
	if spec.OutputBytes <= 0 || spec.OutputBytes > wire.MaxArenaBytes {
		return nil, fmt.Errorf("%w: service %s: %w: %d bytes for outputs, choose from 1 to %d",
			ErrOptions, spec.Name, wire.ErrArenaSize, spec.OutputBytes, int64(wire.MaxArenaBytes))
	}
	if spec.Inputs == nil {
		return nil, fmt.Errorf("%w: service %s has no memory for inputs", ErrOptions, spec.Name)
	}
	return &service{executor: e, spec: spec, restart: make(chan struct{}, 1)}, nil
}

// begin starts the supervisor. The caller holds Executor.mu.
func (s *service) begin(ctx context.Context) {
	ctx, s.end = context.WithCancelCause(ctx)
	s.start(func() { s.supervise(ctx) })
}

// start runs f in a goroutine that Close and Remove wait for.
func (s *service) start(f func()) {
	s.threads.Add(1)
	s.executor.workers.Go(func() {
		defer s.threads.Done()
		f()
	})
}

// supervise runs one worker after another until the service ends. It applies the
// restart policy, except to losses that Hold caused.
func (s *service) supervise(ctx context.Context) {
	opts := &s.executor.opts
	policy := restarts{Restarts: child.Restarts{Policy: opts.Policy}, retryMin: opts.RetryMin, retryMax: opts.RetryMax, loadTimeout: opts.LoadTimeout}
	last := 0 // PID of the process that ended together with the service
	if err := s.spec.Refused; err != nil {
		s.giveUp(ctx, &policy, err, 0)
	}
	for life := s.gate.enter(ctx); life != nil; life = s.gate.enter(ctx) {
		began := time.Now()
		lost, readyFor := s.serve(ctx, life)
		if errors.Is(lost.Err, ErrHeld) {
			s.setDown(Waiting, lost.Err)
			s.emit(lost)
			continue
		}
		if ctx.Err() != nil {
			last = lost.PID
			break
		}
		delay, verdict := policy.next(time.Now(), time.Since(began), readyFor, lost.Err)
		lost.RestartIn = delay
		s.setDown(Waiting, lost.Err)
		s.emit(lost)
		if verdict == nil {
			child.Within(ctx.Done(), delay)
		} else {
			s.giveUp(ctx, &policy, verdict, delay)
		}
	}
	s.setDown(Closed, ending(ctx))
	s.emit(Event{Kind: WorkerStopped, PID: last})
}

// ending returns why a service whose ctx has ended is ending: it was removed, or
// the executor closes.
func ending(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrRemoved) {
		return cause
	}
	return ErrClosed
}

// serve starts a worker and returns when it is gone. readyFor is how long the
// worker was ready. The worker is lost when life ends, and asked to exit when ctx
// does.
func (s *service) serve(ctx, life context.Context) (lost Event, readyFor time.Duration) {
	w, err := newWorker(s)
	if err != nil {
		s.gate.leave()
		return Event{Kind: WorkerLost, Err: fmt.Errorf("worker of %s: %w: %w", s.spec.Name, ErrStart, err)}, 0
	}
	s.setStarting(w)
	defer context.AfterFunc(life, func() { w.lose(context.Cause(life)) })()
	s.emit(Event{Kind: WorkerStarting, PID: w.process.PID()})
	if err := w.load(ctx); err != nil {
		w.lose(err)
		close(w.read)
		return s.reap(w), 0
	}
	s.start(w.listen)
	s.remember(w.info.Cut)
	ready := time.Now()
	s.setReady(w)
	s.emit(Event{Kind: WorkerReady, PID: w.process.PID(), Info: &w.info, Took: ready.Sub(w.begin)})
	s.watch(ctx, w)
	readyFor = time.Since(ready)
	return s.reap(w), readyFor
}

// watch returns when the worker is lost. It is the watchdog: it loses the worker
// if a span exceeds SpanTimeout, and asks the worker to exit when ctx ends.
func (s *service) watch(ctx context.Context, w *worker) {
	limit := s.executor.opts.SpanTimeout
	look := time.NewTimer(limit)
	defer look.Stop()
	for {
		select {
		case <-w.lost:
			return
		case <-ctx.Done():
			w.quit()
			child.Within(w.lost, s.executor.opts.CloseGrace)
			w.lose(ending(ctx))
			return
		case <-look.C:
			batch, ran := w.runs()
			if ran >= limit {
				w.blame(batch)
				w.lose(fmt.Errorf("%w: span not done after %v", ErrSpanTimeout, limit))
			}
			look.Reset(max(limit-ran, time.Millisecond)) // a run that begins now cannot exceed the limit earlier
		}
	}
}

// reap ends the spans of a lost worker and frees what it had. When it returns,
// nothing is left of the worker but outputs that are still leased. The reader
// must end before failAll, because both end spans; the process must end before its
// blocks are freed, because it may still write to them.
func (s *service) reap(w *worker) Event {
	s.setDown(Waiting, w.cause())
	<-w.read
	child.Within(w.process.Done(), lostGrace)
	w.mu.Lock()
	batches := slices.Sorted(maps.Keys(w.mu.batches))
	w.mu.Unlock()
	w.failAll(w.exitError())
	w.awaitEnd(stuckAfter)
	w.mu.Lock()
	w.mu.free()
	w.mu.Unlock()
	w.conn.close()
	w.outputs.Close()
	s.gate.leave()
	return Event{Kind: WorkerLost, PID: w.process.PID(), Err: w.exitError(), Batches: batches}
}

// remember passes this worker's choice of cut points on to the service's next
// worker, which then need not measure again.
func (s *service) remember(cut *wire.CutChoice) {
	asked := s.spec.Load.Choose
	if asked == nil || !cut.Measured() {
		return
	}
	next := *asked
	next.Known = cut
	s.spec.Load.Choose = &next
}

// giveUp reports the service as failed permanently. It returns when Restart is
// called, or after pause unless that is 0.
func (s *service) giveUp(ctx context.Context, policy *restarts, err error, pause time.Duration) {
	select {
	case <-s.restart: // a request from before this failure is stale
	default:
	}
	s.setDown(GivenUp, err)
	s.emit(Event{Kind: WorkerFailed, Err: err, RestartIn: pause})
	var over <-chan time.Time
	if pause > 0 {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		over = timer.C
	}
	select {
	case <-ctx.Done():
	case <-over:
	case <-s.restart:
		policy.forgive()
	}
}

func (s *service) emit(e Event) {
	e.Service = s.spec.ID
	s.executor.opts.Events(e)
}

func (s *service) output(line string) { s.emit(Event{Kind: WorkerOutput, Line: line}) }

func (s *service) state() State {
	s.mu.Lock()
	state, w := s.mu.state, s.mu.worker
	s.mu.Unlock()
	state.OutputLeases = s.leases()
	if w != nil {
		w.mu.Lock()
		state.InFlight = len(w.mu.flights.list)
		w.mu.Unlock()
		state.IntermediateBytes = w.outputs.Held()
	}
	state.ResidentBytes = residentBytes(state.PID)
	return state
}

// setStarting records a new worker, and drops the output arenas of earlier ones
// that are no longer leased.
func (s *service) setStarting(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.state.Phase, s.mu.state.PID = Starting, w.process.PID()
	s.mu.state.Starts++
	s.mu.outputs = append(slices.DeleteFunc(s.mu.outputs, func(o *wire.Outputs) bool { return o.Leases() == 0 }), w.outputs)
}

func (s *service) setReady(w *worker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.state.Phase = Ready
	s.mu.worker = w
}

// setDown records that there is no worker, so that new spans are lost with
// ErrNotReady.
func (s *service) setDown(p Phase, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.worker = nil
	s.mu.state.Phase, s.mu.state.PID, s.mu.state.Err = p, 0, err
}

// ready returns the worker that can run spans, or nil.
func (s *service) ready() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.worker
}

// checkInputs returns an error if an input lies outside the arena, where the
// worker could not read it.
func (s *service) checkInputs(queries []wire.QueryTensors) error {
	for _, q := range queries {
		for i, t := range q.Inputs {
			if !s.spec.Inputs.Contains(t.Offset, t.Bytes) {
				return fmt.Errorf("%w: input %d of query %d is not in the arena", ErrBadSpan, i, q.ID)
			}
		}
	}
	return nil
}

// leases returns how many outputs of this service are leased, including those of
// earlier workers.
func (s *service) leases() (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.mu.outputs {
		sum += o.Leases()
	}
	return sum
}

// able returns the worker, or an error that says why there is none.
func (s *service) able() (*worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.gone == nil && s.mu.worker == nil {
		return nil, ErrNotReady
	}
	return s.mu.worker, s.mu.gone
}

// run sends the span of a round to the worker and reports whether it was sent. A
// span that was not sent has failed.
func (s *service) run(r *round, index int, request *SpanRequest) bool {
	w, err := s.able()
	if err != nil {
		r.fail(index, models.SpanLost, err)
		return false
	}
	return w.run(r, index, request)
}

// awaitRounds returns when the outcomes of all rounds with a span of this service
// have been delivered. The service has no worker by then, so every round ends.
func (s *service) awaitRounds() {
	ticker := time.NewTicker(releaseInterval)
	defer ticker.Stop()
	for s.rounds.Load() > 0 {
		<-ticker.C
	}
}

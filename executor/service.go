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
// reaped, so that their error can say how it ended. A process that was killed
// closes its socket last, so this is nearly always a moment.
const lostGrace = 250 * time.Millisecond

// stuckAfter is after how long there is a line of output about a worker that was
// killed and has not ended.
const stuckAfter = 10 * time.Second

// releaseLook is how often is looked whether the last round was received, or the last
// output given back.
const releaseLook = 2 * time.Millisecond

// service is one service with its worker, if it has one.
type service struct {
	executor *Executor
	spec     ServiceSpec
	restart  chan struct{}           // a person wants a service that was given up to be tried again
	rounds   atomic.Int32            // with spans of this service, whose outcome is not delivered
	threads  sync.WaitGroup          // every goroutine of this service
	end      context.CancelCauseFunc // ends the supervisor, nil before there is one; under Executor.mu
	leaves   bool                    // a Remove runs; under Executor.mu

	gate gate

	mu struct {
		sync.Mutex
		state   State
		gone    error           // why there will be no worker any more, nil if there may be
		worker  *worker         // nil unless it is ready
		outputs []*wire.Outputs // may be leased, also where the worker is gone
		moved   map[kind]int64  // bytes that the last batch of a kind took along, as it moved
	}
}

// Phase is where a service stands in its life.
type Phase uint8

// The phases of a service.
const (
	Waiting  Phase = iota // for the next start
	Starting              // a process is loading the model
	Ready                 // spans can be run
	GivenUp               // lost too often; Restart tries again at once
	Closed
)

func (p Phase) String() string {
	names := [...]string{Waiting: "waiting", Starting: "starting", Ready: "ready", GivenUp: "given up", Closed: "closed"}
	if int(p) < len(names) {
		return names[p]
	}
	return ""
}

// State is what is known of a service.
type State struct {
	Phase             Phase
	PID               int   // 0 without a process
	Starts            int   // processes started so far
	Err               error // why the last worker was lost, nil if none was
	InFlight          int   // runs sent and not answered
	IntermediateBytes int64 // held for batches, as the worker says
	OutputLeases      int   // outputs that were not released yet
	ResidentBytes     int64 // 0 if it is not known
}

// newService returns a service whose supervisor is still to begin.
func newService(e *Executor, spec ServiceSpec) (*service, error) {
	// The output arena is made anew for every worker, which is late to hear of it.
	if spec.OutputBytes <= 0 || spec.OutputBytes > wire.MaxArenaBytes {
		return nil, fmt.Errorf("%w: service %s: %w: %d bytes for outputs, choose from 1 to %d",
			ErrOptions, spec.Name, wire.ErrArenaSize, spec.OutputBytes, int64(wire.MaxArenaBytes))
	}
	if spec.Inputs == nil {
		return nil, fmt.Errorf("%w: service %s has no memory for inputs", ErrOptions, spec.Name)
	}
	return &service{executor: e, spec: spec, restart: make(chan struct{}, 1)}, nil
}

// begin starts the supervisor. The executor is locked.
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

// supervise is the life of a service: a worker after the other.
func (s *service) supervise(ctx context.Context) {
	opts := &s.executor.opts
	policy := restarts{Restarts: child.Restarts{Policy: opts.Policy}, retryMin: opts.RetryMin, retryMax: opts.RetryMax, loadTimeout: opts.LoadTimeout}
	last := 0 // the process that ended with the service
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

// ending returns why ctx, which has ended, ends a service.
func ending(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, ErrRemoved) {
		return cause
	}
	return ErrClosed
}

// serve starts a worker and returns when it is gone, with how long it was
// ready. The worker is lost when its life ends, and dismissed when ctx does.
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
		return s.bury(w), 0
	}
	s.start(w.listen)
	s.remember(w.info.Cut)
	ready := time.Now()
	s.setReady(w)
	s.emit(Event{Kind: WorkerReady, PID: w.process.PID(), Info: &w.info, Took: ready.Sub(w.begin)})
	s.watch(ctx, w)
	readyFor = time.Since(ready)
	return s.bury(w), readyFor
}

// watch returns when the worker is lost, which it sees to if the worker hangs
// or the executor closes.
func (s *service) watch(ctx context.Context, w *worker) {
	limit := s.executor.opts.SpanTimeout
	look := time.NewTimer(limit)
	defer look.Stop()
	for {
		select {
		case <-w.lost:
			return
		case <-ctx.Done():
			w.quit() // and exits by itself, if it does so in time
			child.Within(w.lost, s.executor.opts.CloseGrace)
			w.lose(ending(ctx))
			return
		case <-look.C:
			ran := w.runs()
			if ran >= limit {
				w.lose(fmt.Errorf("%w: span not done after %v", ErrSpanTimeout, limit))
			}
			look.Reset(max(limit-ran, time.Millisecond)) // no run that begins now exceeds it before
		}
	}
}

// bury ends what a lost worker had to do, and returns when nothing is left of
// it but the outputs that are still leased.
func (s *service) bury(w *worker) Event {
	s.setDown(Waiting, w.cause())
	<-w.read
	child.Within(w.process.Done(), lostGrace)
	w.mu.Lock()
	batches := slices.Sorted(maps.Keys(w.mu.batches))
	w.mu.Unlock()
	w.strand(w.obituary())
	w.awaitEnd(stuckAfter)
	w.mu.Lock()
	w.mu.free()
	w.mu.Unlock()
	w.conn.close()
	w.outputs.Close()
	s.gate.leave()
	return Event{Kind: WorkerLost, PID: w.process.PID(), Err: w.obituary(), Batches: batches}
}

// remember lets the next worker of the service cut its model as this one has
// chosen, without measuring again.
func (s *service) remember(cut *wire.CutChoice) {
	asked := s.spec.Load.Choose
	if asked == nil || !cut.Measured() {
		return
	}
	next := *asked
	next.Known = cut
	s.spec.Load.Choose = &next
}

// giveUp waits for a person, or for a pause to pass unless that is 0.
func (s *service) giveUp(ctx context.Context, policy *restarts, err error, pause time.Duration) {
	select {
	case <-s.restart: // asked for before it was given up this time
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
		state.InFlight = w.mu.flights.count
		w.mu.Unlock()
		state.IntermediateBytes = w.outputs.Held()
	}
	state.ResidentBytes = residentBytes(state.PID)
	return state
}

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

func (s *service) setDown(p Phase, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.worker = nil
	s.mu.state.Phase, s.mu.state.PID, s.mu.state.Err = p, 0, err
}

// ready returns the worker, or nil if there is none that can run spans.
func (s *service) ready() *worker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.worker
}

// checkInputs refuses queries that the worker could not read.
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

// leases returns how many outputs of this service are leased.
func (s *service) leases() (sum int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range s.mu.outputs {
		sum += o.Leases()
	}
	return sum
}

// able returns the worker, or why none can run anything.
func (s *service) able() (*worker, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.gone == nil && s.mu.worker == nil {
		return nil, ErrNotReady
	}
	return s.mu.worker, s.mu.gone
}

// run sends the span of a round to the worker. It reports whether it was sent.
func (s *service) run(r *round, index int, request *SpanRequest) bool {
	w, err := s.able()
	if err != nil {
		r.fail(index, models.SpanLost, err)
		return false
	}
	return w.run(r, index, request)
}

// awaitRounds returns when the outcome of every round with a span of a service without
// a worker was delivered. A round always ends.
func (s *service) awaitRounds() {
	ticker := time.NewTicker(releaseLook)
	defer ticker.Stop()
	for s.rounds.Load() > 0 {
		<-ticker.C
	}
}

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

	"github.com/overlapd/overlapd/models"
)

// services maps IDs to services. A published map is immutable.
type services map[models.ServiceID]*service

// Executor owns the workers of all services.
type Executor struct {
	opts Options

	// services is replaced as a whole under mu, so that Run can read it without
	// a lock.
	services atomic.Pointer[services]
	outcomes chan Outcome

	// These count rounds, detached spans and moves from this executor whose
	// outcome has not been delivered yet. They bound what outcomes must hold.
	running  atomic.Int32
	overruns atomic.Int32
	moves    atomic.Int32

	ctx    context.Context
	cancel context.CancelFunc

	// workers counts every goroutine of the executor.
	workers sync.WaitGroup
	closing chan struct{}

	// yielding is nil if no reader polls.
	yielding *yielding

	cores cores

	mu struct {
		sync.Mutex
		started bool
		closed  bool

		// held is the cause that Hold was called with, nil while workers may start.
		held error
	}
}

// New checks the options and returns an executor that runs no process yet. Close
// must be called even if Start is not.
func New(opts Options) (*Executor, error) {
	opts = opts.withDefaults()
	if len(opts.Command) == 0 && opts.Inside == nil {
		return nil, fmt.Errorf("%w: no command to start a worker", ErrOptions)
	}
	if err := checkCores(opts.Affinity); err != nil {
		return nil, err
	}
	e := &Executor{
		opts:     opts,
		outcomes: opts.Outcomes,
		cancel:   func() {},
		closing:  make(chan struct{}),
	}
	if e.outcomes == nil {
		e.outcomes = make(chan Outcome, MaxOutcomes)
	}
	e.services.Store(&services{})
	if opts.Poll > 0 {
		var err error
		if e.yielding, err = newYielding(); err != nil {
			return nil, err
		}
	}
	for _, spec := range opts.Services {
		if err := e.Add(spec); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// Start starts the workers and returns immediately; an event reports each one
// that becomes ready. When ctx ends, the workers end as they do at Close, which
// must still be called.
func (e *Executor) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed || e.mu.started {
		return ErrClosed
	}
	e.mu.started = true
	e.ctx, e.cancel = context.WithCancel(ctx)
	for _, s := range *e.services.Load() {
		s.begin(e.ctx)
	}
	return nil
}

// Close ends the workers and waits for every goroutine. Spans in flight are
// stopped or lost and their outcomes are delivered. Then Outcomes is closed,
// unless the caller supplied the channel in Options. Close returns ErrLeak if
// outputs have not been released; their memory stays mapped until they are.
func (e *Executor) Close() error {
	e.mu.Lock()
	if e.mu.closed {
		e.mu.Unlock()
		return ErrClosed
	}
	e.mu.closed = true
	e.cancel()
	close(e.closing)
	e.mu.Unlock()
	e.workers.Wait()
	if e.yielding != nil {
		e.yielding.file.Close()
	}
	if e.opts.Outcomes == nil {
		close(e.outcomes)
	}
	var errs []error
	end := time.Now().Add(readGrace)
	for _, s := range *e.services.Load() {
		for s.leases() > 0 && time.Now().Before(end) {
			time.Sleep(releaseInterval)
		}
		if n := s.leases(); n > 0 {
			errs = append(errs, fmt.Errorf("%w: %d outputs of service %s", ErrLeak, n, s.spec.Name))
		}
	}
	return errors.Join(errs...)
}

// readGrace is how long Close waits for the receiver of the last outcomes to
// release their outputs before it reports a leak.
const readGrace = time.Second

// Run sends the spans of a round and returns immediately. If it returns no error,
// Outcomes delivers exactly one outcome for the round once all of its spans have
// ended, even if workers crash. A second round may be sent before the first has
// ended: each worker begins its spans in the order in which they were sent. Spans
// with a share of the units run at once, so their rounds may end in any order.
func (e *Executor) Run(id uint64, spans []SpanRequest) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return ErrClosed
	}
	if err := e.check(spans); err != nil {
		return err
	}
	// deliver fills the channel before it lowers running, so this sum never
	// counts a round too few and deliver never blocks.
	room := cap(e.outcomes) / MaxOutcomes * MaxRounds
	if running := int(e.running.Load()); running >= MaxRounds || running+len(e.outcomes) >= room {
		return ErrTooManyRounds
	}
	e.running.Add(1)
	r := newRound(id, spans, e.deliver)
	r.outcome.Device, r.inside = e.opts.Device, e.opts.Inside
	r.share = shareOf(len(spans), e.opts.Cores)
	if r.share > 0 && !slices.ContainsFunc(spans, func(s SpanRequest) bool { return s.Whole }) {
		r.stops = e
	}
	var sent []models.Span
	for i := range spans {
		s := e.service(spans[i].Span.Service)
		s.rounds.Add(1)
		if s.run(r, i, &spans[i]) && e.opts.Inside != nil {
			sent = append(sent, spans[i].Span)
		}
	}
	if len(sent) > 0 {
		e.opts.Inside.Sent(sent)
	}
	r.stopRest()
	return nil
}

// service returns the service with this ID, or nil.
func (e *Executor) service(id models.ServiceID) *service { return (*e.services.Load())[id] }

// deliver delivers the outcome of a round or of a detached span. It lowers the
// services' counts last, because a service must not be forgotten before that.
func (e *Executor) deliver(o Outcome) {
	e.outcomes <- o
	if o.Overrun {
		e.overruns.Add(-1)
	} else {
		e.running.Add(-1)
	}
	for i := range o.Spans {
		if s := &o.Spans[i]; s.Status != models.SpanOverrun {
			e.service(s.Span.Service).rounds.Add(-1)
		}
	}
}

// SetApart detaches the spans of a round that still run. It delivers the outcome
// of the round immediately, with SpanOverrun for each detached span; the end of
// each of those is delivered later as an Outcome with Overrun set. SetApart
// returns false if all spans have ended (on an emulated device by its clock), or
// if there would be more than MaxOverruns detached spans.
func (e *Executor) SetApart(id uint64) bool {
	for _, s := range *e.services.Load() {
		w := s.ready()
		if w == nil {
			continue
		}
		if r := w.round(id); r != nil {
			return r.setApart(func(spans int) bool {
				if e.overruns.Add(int32(spans)) <= MaxOverruns {
					return true
				}
				e.overruns.Add(-int32(spans))
				return false
			})
		}
	}
	return false
}

// Abandon stops the spans of a batch whose clients no longer wait. If one still
// runs after OverrunGrace, Abandon ends the worker with ErrOverrun: an operator
// that hangs can be ended only with its process.
func (e *Executor) Abandon(id models.ServiceID, batch models.BatchID) {
	if s := e.service(id); s != nil {
		if w := s.ready(); w != nil {
			w.stop(batch, e.opts.OverrunGrace)
		}
	}
}

// check returns an error for a round that no scheduler may send: it is empty,
// names an unknown service, runs a service twice, or has an invalid operator
// range or inputs outside the arena.
func (e *Executor) check(spans []SpanRequest) error {
	if len(spans) == 0 {
		return fmt.Errorf("%w: a round without spans", ErrBadSpan)
	}
	for i := range spans {
		span := spans[i].Span
		s := e.service(span.Service)
		if s == nil {
			return fmt.Errorf("%w: %d", ErrUnknownService, span.Service)
		}
		for _, other := range spans[:i] {
			if other.Span.Service == span.Service {
				return fmt.Errorf("%w: two of service %s in one round", ErrBadSpan, s.spec.Name)
			}
		}
		if span.Start < 0 || span.End <= span.Start || span.Share < 0 || (span.Start == 0) != (len(spans[i].Queries) > 0) {
			return fmt.Errorf("%w: [%d, %d) with %d queries", ErrBadSpan, span.Start, span.End, len(spans[i].Queries))
		}
		if err := s.checkInputs(spans[i].Queries); err != nil {
			return err
		}
	}
	return nil
}

// Outcomes returns the channel that delivers the outcome of every round. Close
// closes it, unless the caller supplied it in Options.
func (e *Executor) Outcomes() <-chan Outcome { return e.outcomes }

// Stop ends the spans in flight of a batch at their next operator boundary. It
// reports whether there was one. A span that ends at the same moment may still
// end as SpanDone. The worker keeps the batch until Release.
func (e *Executor) Stop(id models.ServiceID, batch models.BatchID) bool {
	s := e.service(id)
	if s == nil {
		return false
	}
	w := s.ready()
	return w != nil && w.stop(batch, 0)
}

// Release makes the worker forget a paused batch. It does nothing for a batch
// that finished, failed or was lost: the worker has forgotten that one already.
func (e *Executor) Release(id models.ServiceID, batch models.BatchID) {
	if s := e.service(id); s != nil {
		if w := s.ready(); w != nil {
			w.release(batch)
		}
	}
}

// State returns a snapshot of a service's worker.
func (e *Executor) State(id models.ServiceID) (State, error) {
	s := e.service(id)
	if s == nil {
		return State{}, fmt.Errorf("%w: %d", ErrUnknownService, id)
	}
	return s.state(), nil
}

// Restart starts a worker for a service that failed permanently. It does nothing
// in any other phase.
func (e *Executor) Restart(id models.ServiceID) error {
	s := e.service(id)
	if s == nil {
		return fmt.Errorf("%w: %d", ErrUnknownService, id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.state.Phase == GivenUp {
		select {
		case s.restart <- struct{}{}:
		default:
		}
	}
	return nil
}

// Add adds a service. Its worker starts immediately, or at Start if that has not
// been called yet, or at Resume while workers are held. Add returns ErrInUse if
// the ID belongs to another service, including one that is being removed.
func (e *Executor) Add(spec ServiceSpec) error {
	s, err := newService(e, spec)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return ErrClosed
	}
	if other := e.service(s.spec.ID); other != nil {
		return fmt.Errorf("%w: %d belongs to service %s; wait until it is removed, or use another", ErrInUse, s.spec.ID, other.spec.Name)
	}
	next := maps.Clone(*e.services.Load())
	next[s.spec.ID] = s
	e.services.Store(&next)
	if e.mu.held != nil {
		s.gate.hold(e.mu.held)
	}
	if e.mu.started {
		s.begin(e.ctx)
	}
	return nil
}

// Remove ends a service and returns immediately. The channel is closed once
// nothing is left of the service:
//
//   - Its worker exited when asked to, or was killed after CloseGrace. A worker
//     that was still loading was killed without delay.
//   - Its spans in flight were stopped or lost, and the outcome of each of its
//     rounds was delivered to the Outcomes channel.
//   - Its last event was WorkerStopped.
//
// Until then the ID remains in use, and new spans of the service are lost with
// ErrRemoved. Afterwards no worker reads its inputs, and the ID can be added
// again. Outputs remain valid until they are released.
func (e *Executor) Remove(id models.ServiceID) (<-chan struct{}, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.service(id)
	switch {
	case e.mu.closed:
		return nil, ErrClosed
	case s == nil:
		return nil, fmt.Errorf("%w: %d", ErrUnknownService, id)
	case s.leaves:
		return nil, fmt.Errorf("%w: %s, already; wait for the first Remove", ErrRemoved, s.spec.Name)
	}
	s.leaves = true
	s.mu.Lock()
	s.mu.gone = ErrRemoved
	s.mu.Unlock()
	if s.end != nil {
		s.end(ErrRemoved)
	}
	gone := make(chan struct{})
	e.workers.Go(func() {
		defer close(gone)
		e.dismantle(s)
	})
	return gone, nil
}

// dismantle waits until nothing is left of a removed service, then forgets it.
func (e *Executor) dismantle(s *service) {
	s.threads.Wait()
	s.awaitRounds()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.mu.closed { // Close still needs the service, to report its leaked outputs
		next := maps.Clone(*e.services.Load())
		delete(next, s.spec.ID)
		e.services.Store(&next)
	}
}

// Hold ends the workers of all services, and starts none until Resume. That
// includes services that are added in between. Hold returns when all processes
// are gone, or with an error when ctx ends; the workers are held in either case.
// The spans in flight are lost with the cause and can run again. These losses do
// not count towards RestartLimit.
func (e *Executor) Hold(ctx context.Context, cause error) error {
	gone := make(map[*service]<-chan struct{})
	e.mu.Lock()
	e.mu.held = cause
	for _, s := range *e.services.Load() {
		gone[s] = s.gate.hold(cause)
	}
	e.mu.Unlock()
	for s, gone := range gone {
		select {
		case <-gone:
		case <-ctx.Done():
			return fmt.Errorf("the worker of service %s (process %d) did not exit: %w", s.spec.Name, s.spec.ID, ctx.Err())
		}
	}
	return nil
}

// Resume allows the workers that Hold ended to start again.
func (e *Executor) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.held = nil
	for _, s := range *e.services.Load() {
		s.gate.resume()
	}
}

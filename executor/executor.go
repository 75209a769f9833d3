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

// services are the services by ID.
type services map[models.ServiceID]*service

// Executor owns the workers of all services.
type Executor struct {
	opts     Options
	services atomic.Pointer[services] // replaced, never changed, so that it is read without a lock
	outcomes chan Outcome
	running  atomic.Int32 // rounds whose outcome is not delivered
	overruns atomic.Int32 // spans that were set apart, and whose outcome is not delivered
	moves    atomic.Int32 // from here, whose outcome is not delivered
	ctx      context.Context
	cancel   context.CancelFunc
	workers  sync.WaitGroup // every goroutine
	closing  chan struct{}  // closed by Close
	yielding *yielding      // nil where no reader polls

	mu struct {
		sync.Mutex
		started bool
		closed  bool
		held    error // why no worker may start, nil if one may
	}
}

// New checks the options. No process runs yet, but Close must be called.
func New(opts Options) (*Executor, error) {
	opts = opts.withDefaults()
	if len(opts.Command) == 0 && opts.Inside == nil {
		return nil, fmt.Errorf("%w: there is no command that starts a worker", ErrOptions)
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

// Start starts the workers and returns at once; an event comes as each is
// ready. When ctx ends, the workers end as they do at Close, which must still
// be called.
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

// Close ends the workers and waits for everything. Spans in flight are stopped
// or lost, their outcomes delivered, and then Outcomes is closed, unless it is that of
// Options. The error is ErrLeak if outputs were not released; their memory stays mapped
// until they are.
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
			time.Sleep(releaseLook)
		}
		if n := s.leases(); n > 0 {
			errs = append(errs, fmt.Errorf("%w: %d outputs of service %s", ErrLeak, n, s.spec.Name))
		}
	}
	return errors.Join(errs...)
}

// readGrace is how long Close waits for whoever receives the last outcomes to release
// their outputs, before it calls that a leak.
const readGrace = time.Second

// Run sends the spans of a round and returns at once. If it returns no error,
// Outcomes delivers exactly one outcome for the round, when all of its spans
// have ended, whatever becomes of the workers. A second round may be sent
// before the first has ended; each worker runs its spans in the order in which
// they were sent.
func (e *Executor) Run(id uint64, spans []SpanRequest) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.mu.closed {
		return ErrClosed
	}
	if err := e.check(spans); err != nil {
		return err
	}
	// A delivery first fills the channel and then lowers what is counted, so this
	// never counts a round too few.
	room := cap(e.outcomes) / MaxOutcomes * MaxRounds
	if running := int(e.running.Load()); running >= MaxRounds || running+len(e.outcomes) >= room {
		return ErrTooManyRounds
	}
	e.running.Add(1)
	r := newRound(id, spans, e.deliver)
	r.outcome.Device, r.inside = e.opts.Device, e.opts.Inside
	r.threads = threadsOf(len(spans), e.opts.Cores)
	if r.threads > 0 && !slices.ContainsFunc(spans, func(s SpanRequest) bool { return s.Whole }) {
		r.stops = e
	}
	var sent []models.Span // for who is inside
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

// deliver ends a round, or a span that was set apart. None of the services is
// forgotten before.
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

// SetApart ends a round though spans of it still run: its outcome is delivered
// at once, with SpanOverrun for each of them. How each of them ends is delivered
// later, as an Outcome with Overrun set. It reports false if all of them have
// ended, on an emulated device by its clock, or MaxOverruns would be exceeded.
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

// Abandon stops the spans of a batch for which nobody waits any more, and ends
// the worker with ErrOverrun if one still runs after OverrunGrace: an operator
// that does not end ends with its process only.
func (e *Executor) Abandon(id models.ServiceID, batch models.BatchID) {
	if s := e.service(id); s != nil {
		if w := s.ready(); w != nil {
			w.stop(batch, e.opts.OverrunGrace)
		}
	}
}

// check refuses a round that cannot be meant.
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
		if span.Start < 0 || span.End <= span.Start || (span.Start == 0) != (len(spans[i].Queries) > 0) {
			return fmt.Errorf("%w: [%d, %d) with %d queries", ErrBadSpan, span.Start, span.End, len(spans[i].Queries))
		}
		if err := s.checkInputs(spans[i].Queries); err != nil {
			return err
		}
	}
	return nil
}

// Outcomes delivers the outcome of every round. It is closed by Close, unless it is that
// of Options.
func (e *Executor) Outcomes() <-chan Outcome { return e.outcomes }

// Stop ends the spans of a batch that are in flight at their next operator
// boundary. It reports whether there was one: a span that ends at the same
// moment may end as Done nevertheless. The batch stays until it is released.
func (e *Executor) Stop(id models.ServiceID, batch models.BatchID) bool {
	s := e.service(id)
	if s == nil {
		return false
	}
	w := s.ready()
	return w != nil && w.stop(batch, 0)
}

// Release makes the worker forget a paused batch. One that finished, failed or
// was lost is forgotten already, and releasing it does nothing.
func (e *Executor) Release(id models.ServiceID, batch models.BatchID) {
	if s := e.service(id); s != nil {
		if w := s.ready(); w != nil {
			w.release(batch)
		}
	}
}

// State returns what is known of a service.
func (e *Executor) State(id models.ServiceID) (State, error) {
	s := e.service(id)
	if s == nil {
		return State{}, fmt.Errorf("%w: %d", ErrUnknownService, id)
	}
	return s.state(), nil
}

// Restart makes a service that was given up try again. It does nothing for
// another.
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

// Add adds a service. Its worker is started at once, or at Start if that is
// still to come, or at Resume while workers are held. The error is ErrInUse if
// there is a service with this ID.
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
		return fmt.Errorf("%w: %d is that of service %s; wait until it is removed, or take another", ErrInUse, s.spec.ID, other.spec.Name)
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

// Remove ends a service. It returns at once; the channel is closed once nothing is
// left of it: its worker was asked to exit, and killed if it did not within CloseGrace,
// a worker that loads at once; its spans in flight were stopped or lost, and Outcomes
// delivers, or holds, the outcome of each of its rounds; its last event was
// WorkerStopped. Until then its ID is in use, and spans of it are lost with
// ErrRemoved. After that no worker reads its inputs, and the ID can be added again.
// Outputs stay as they are until they are released.
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

// dismantle returns when nothing is left of a service that ends.
func (e *Executor) dismantle(s *service) {
	s.threads.Wait()
	s.awaitRounds()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.mu.closed { // else Close says which of its outputs are in use
		next := maps.Clone(*e.services.Load())
		delete(next, s.spec.ID)
		e.services.Store(&next)
	}
}

// Hold ends the workers of all services together and starts none until Resume,
// also none of a service that is added meanwhile. It returns when all of their
// processes are gone, or when ctx ends: then they are held nevertheless. What they
// ran is lost with the cause and can be run again. No such loss counts towards
// giving a service up.
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
			return fmt.Errorf("the worker of service %s (%d) does not end: %w", s.spec.Name, s.spec.ID, ctx.Err())
		}
	}
	return nil
}

// Resume lets the workers that Hold stopped start again.
func (e *Executor) Resume() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.mu.held = nil
	for _, s := range *e.services.Load() {
		s.gate.resume()
	}
}

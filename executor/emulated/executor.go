package emulated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// pollTime is for how long the device looks at the clock before a round ends,
// since waking up takes about as long.
const pollTime = 100 * time.Microsecond

// seedStream keeps what is drawn here apart from what others draw with the same
// seed.
const seedStream = 0x656d756c61746564

// Executor runs the rounds of services whose models a device knows.
type Executor struct {
	opts     Options
	services atomic.Pointer[services]
	outcomes chan executor.Outcome
	alarm    *alarm
	device   sync.WaitGroup // every goroutine
	unwatch  func() bool    // the context of Start
	closing  chan struct{}  // closed by Close

	mu     sync.Mutex // guards what follows, and what changes in services
	began  bool
	closed bool
	rounds []*round // oldest first; the first one runs
	random *rand.Rand
	group  models.Group   // memory of begin
	single [1]models.Span // memory of alone
}

// New checks the options and makes the arenas. Close must be called.
func New(opts Options) (*Executor, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	a, err := newAlarm()
	if err != nil {
		return nil, err
	}
	e := &Executor{
		opts:     opts,
		outcomes: make(chan executor.Outcome, executor.MaxRounds),
		alarm:    a,
		random:   rand.New(rand.NewPCG(opts.Seed, seedStream)),
		unwatch:  func() bool { return true },
		closing:  make(chan struct{}),
	}
	e.services.Store(&services{})
	for _, spec := range opts.Services {
		if err := e.Add(spec); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// Start lets rounds run and returns at once; events tell that the services are
// ready. When ctx ends, the executor ends what it runs and takes no more, but
// must still be closed.
func (e *Executor) Start(ctx context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed || e.began {
		return executor.ErrClosed
	}
	e.began = true
	for _, s := range e.listed() {
		e.beginLocked(s)
	}
	e.unwatch = context.AfterFunc(ctx, e.end)
	e.device.Go(e.run)
	return nil
}

// run is the device.
func (e *Executor) run() {
	for e.alarm.wait() {
		for end, left := e.finish(); left; end, left = e.finish() {
			for time.Now().Before(end) {
				runtime.Gosched()
			}
		}
	}
}

// finish delivers the round that runs if it has ended, and begins the next. It
// returns when the round that runs then ends, if that is soon, and sets the
// alarm if it is not.
func (e *Executor) finish() (end time.Time, soon bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for len(e.rounds) > 0 {
		r, now := e.rounds[0], time.Now()
		if r.began.IsZero() {
			r.begin(e, now)
		}
		end := r.end()
		switch left := end.Sub(now); {
		case left <= 0:
			e.deliver(r)
		case left <= pollTime:
			return end, true
		default:
			e.alarm.set(left - pollTime)
			return end, false
		}
	}
	return time.Time{}, false
}

// deliver ends the oldest round. There is room for its outcome: see Run.
func (e *Executor) deliver(r *round) {
	for i := range r.spans {
		e.settle(&r.spans[i], &r.outcome.Spans[i])
	}
	r.outcome.Took = time.Since(r.sent)
	e.rounds = e.rounds[1:]
	e.outcomes <- r.outcome
}

// settle says what became of a span that has not ended.
func (e *Executor) settle(s *span, o *executor.SpanOutcome) {
	s.service.flying--
	if o.Err != nil {
		return
	}
	o.Status, o.Reached, o.Took = models.SpanDone, s.reached, s.took
	if s.stopped {
		o.Status = models.SpanStopped
	}
	if s.reached < s.service.spec.Model.Operators {
		return
	}
	delete(s.service.batches, s.on.Batch)
	var err error
	if o.Queries, err = s.service.answer(s.batch); err != nil {
		o.Status, o.Err, o.Reached = models.SpanFailed, err, s.on.Start
		return
	}
	o.Finished = true
}

// Run sends the spans of a round and returns at once. If it returns no error,
// Outcomes delivers exactly one outcome for the round.
func (e *Executor) Run(id uint64, spans []executor.SpanRequest) error {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return executor.ErrClosed
	}
	if err := e.check(spans); err != nil {
		return err
	}
	if len(e.rounds)+len(e.outcomes) >= executor.MaxRounds {
		return executor.ErrTooManyRounds
	}
	r := &round{
		outcome: executor.Outcome{Round: id, Spans: make([]executor.SpanOutcome, len(spans))},
		sent:    now, spans: make([]span, len(spans)),
	}
	ended := 0
	for i := range spans {
		if e.open(&r.spans[i], &r.outcome.Spans[i], &spans[i]); r.spans[i].batch == nil {
			ended++
		}
	}
	e.rounds = append(e.rounds, r)
	if len(e.rounds) > 1 {
		return nil
	}
	if ended == len(spans) {
		e.deliver(r) // the device may not run
		return nil
	}
	r.begin(e, now)
	e.alarm.set(r.end().Sub(now) - pollTime)
	return nil
}

// open makes a span of a round out of what was asked for.
func (e *Executor) open(s *span, o *executor.SpanOutcome, r *executor.SpanRequest) {
	s.service = e.service(r.Span.Service)
	s.service.flying++
	s.on, s.reached = r.Span, r.Span.Start
	s.on.Service = models.ServiceID(s.service.spec.Model.Position)
	o.Span, o.Reached = r.Span, r.Span.Start
	e.single[0] = s.on
	if r.Span.End <= s.service.spec.Model.Operators && !e.opts.Device.Covers(models.Group{Spans: e.single[:]}) {
		o.Status, o.Err = models.SpanFailed, fmt.Errorf("%w: the device does not know service %s with batch size %d, sequence length %d",
			executor.ErrBadSpan, s.service.spec.Name, r.Span.Size, r.Span.SeqLen)
		return
	}
	s.batch, o.Status, o.Err = s.service.open(r)
}

// check refuses a round that cannot be meant.
func (e *Executor) check(spans []executor.SpanRequest) error {
	if len(spans) == 0 {
		return fmt.Errorf("%w: a round without spans", executor.ErrBadSpan)
	}
	for i := range spans {
		s := e.service(spans[i].Span.Service)
		if s == nil {
			return fmt.Errorf("%w: %d", executor.ErrUnknownService, spans[i].Span.Service)
		}
		for _, other := range spans[:i] {
			if other.Span.Service == spans[i].Span.Service {
				return fmt.Errorf("%w: two of service %s in one round", executor.ErrBadSpan, s.spec.Name)
			}
		}
		if err := s.check(&spans[i]); err != nil {
			return err
		}
	}
	return nil
}

// Outcomes delivers the outcome of every round. It is closed by Close.
func (e *Executor) Outcomes() <-chan executor.Outcome { return e.outcomes }

// Stop ends the spans of a batch that are in flight at their next operator
// boundary. It reports whether there was one. The batch stays until it is
// released.
func (e *Executor) Stop(id models.ServiceID, batch models.BatchID) (found bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for _, r := range e.rounds {
		for i := range r.spans {
			if s := &r.spans[i]; s.service.spec.ID == id && s.on.Batch == batch && s.batch != nil && r.stop(e, s, now) {
				found = true
			}
		}
	}
	if found && !e.rounds[0].began.IsZero() {
		e.alarm.set(e.rounds[0].end().Sub(now) - pollTime)
	}
	return found
}

// Release forgets a paused batch. Releasing one that has finished does nothing.
func (e *Executor) Release(id models.ServiceID, batch models.BatchID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.service(id); s != nil {
		delete(s.batches, batch)
	}
}

// Arena returns the input arena of a service, or nil if there is no such
// service.
func (e *Executor) Arena(id models.ServiceID) *wire.InputArena {
	if s := e.service(id); s != nil {
		return s.arena
	}
	return nil
}

// State returns what is known of a service. There is no process.
func (e *Executor) State(id models.ServiceID) (executor.State, error) {
	s := e.service(id)
	if s == nil {
		return executor.State{}, fmt.Errorf("%w: %d", executor.ErrUnknownService, id)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return executor.State{
		Phase: s.phase, Since: s.since, Info: &s.info, InFlight: s.flying,
		InputBytes: s.arena.Used(), OutputLeases: s.outputs.Outputs().Leases(),
	}, nil
}

// end loses the rounds that run and lets no more run.
func (e *Executor) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, s := range e.listed() {
		s.setPhase(executor.Closed)
		clear(s.batches)
	}
	for len(e.rounds) > 0 {
		r := e.rounds[0]
		for i := range r.spans {
			if o := &r.outcome.Spans[i]; o.Err == nil {
				o.Status = models.SpanLost
				o.Err = &executor.LostError{Service: r.spans[i].service.spec.Name, Cause: executor.ErrClosed}
			}
		}
		e.deliver(r)
	}
}

// Close ends what runs and waits for everything. Spans in flight are lost, their
// outcomes delivered, and then Outcomes is closed. The error is
// [executor.ErrLeak] if inputs were not freed or outputs not released; their
// memory stays mapped until they are.
func (e *Executor) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return executor.ErrClosed
	}
	e.closed = true
	close(e.closing)
	e.mu.Unlock()
	e.unwatch()
	e.end()
	err := e.alarm.close()
	e.device.Wait()
	close(e.outcomes)
	errs := []error{err}
	for _, s := range e.listed() {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// Limits of the backend.
const (
	// inboxLimit is how many messages may wait for the scheduler goroutine.
	// A query that finds the inbox full is refused as if its queue were full.
	inboxLimit = 8192

	// maxRetries is how often a query is run again whose worker was lost.
	maxRetries = 2

	// heartbeat is how often the scheduler goroutine shows that it is alive,
	// and stalled is for how long it may not have done so.
	heartbeat = time.Second
	stalled   = 10 * time.Second
)

// backend is the [query.Backend] of a running daemon: it hands calls to the
// scheduler goroutine, which owns everything that is decided.
type backend struct {
	log    zerolog.Logger
	device string // what the services run on, in words
	epoch  time.Time
	*query.Registry
	emulation *emulation // nil for a device that computes
	exec      runner
	inbox     chan message
	board     status.Board
	metrics   *metrics.Recorder // nil without metrics
	ending    chan struct{}     // closed when the loop takes no more messages
	done      chan struct{}     // closed when the loop has ended
	lastID    atomic.Uint64
	draining  atomic.Bool
	beat      atomic.Int64 // of the loop, since the epoch
	profiles  profiles     // may be nil
	keeper    *keeper
	timeline  *timeline.Ring
	part      *gpu.Part // nil without a GPU
	loop      *loop
	running   bool // the loop was started

	gpus func() []metrics.GPU // readings of what the services run on, which must not wait; nil if that is no GPU

	life       context.Context // ends when the daemon closes
	goroutines *sync.WaitGroup // that run besides the loop
}

// runner is what the backend asks of the [executor.Executor].
type runner interface {
	Start(context.Context) error
	Run(round uint64, spans []executor.SpanRequest) error
	Outcomes() <-chan executor.Outcome
	Stop(models.ServiceID, models.BatchID) bool
	Release(models.ServiceID, models.BatchID)
	Arena(models.ServiceID) *wire.InputArena
	State(models.ServiceID) (executor.State, error)
	Add(executor.ServiceSpec) error
	Remove(models.ServiceID) (<-chan error, error)
	Close() error
}

// message is what the scheduler goroutine is told. One of the fields is set.
type message struct {
	call   *query.Call
	cancel models.QueryID
	event  *executor.Event
	drain  bool
	giveUp bool        // the time to answer what was accepted is over
	ask    func(*loop) // run by the loop, for what only it may read
}

func newBackend(c config.Config, log zerolog.Logger) *backend {
	b := &backend{
		log:      log,
		epoch:    time.Now(),
		Registry: new(query.Registry),
		inbox:    make(chan message, inboxLimit),
		ending:   make(chan struct{}),
		done:     make(chan struct{}),
	}
	list := make([]*query.Service, len(c.Services))
	for i, s := range c.Services {
		list[i] = newService(models.ServiceID(i), &s, c.Policy, b)
	}
	b.Publish(list)
	return b
}

// newService returns the service of a configuration entry, not loaded yet.
func newService(id models.ServiceID, c *config.Service, policy string, b query.Backend) *query.Service {
	s := query.NewService(id, c.Name)
	s.Policy, s.Backend = policy, b
	setTargets(s, c)
	return s
}

// renewed returns a service with other targets. The new one is to be told how
// its model looks like.
func renewed(s *query.Service, c *config.Service) *query.Service {
	next := s.Successor()
	setTargets(next, c)
	return next
}

func setTargets(s *query.Service, c *config.Service) {
	s.QoSTarget, s.QueueLimit, s.MaxBatch, s.MaxQueryBatch = c.Target, c.QueueLimit, c.MaxBatch, c.MaxQueryBatch
}

// now returns the time since the epoch, by the monotonic clock.
func (b *backend) now() time.Duration { return time.Since(b.epoch) }

// Alloc implements Backend.
func (b *backend) Alloc(s *query.Service, bytes int64) (query.Memory, error) {
	arena := b.exec.Arena(s.ID)
	if bytes > arena.Bytes() {
		return query.Memory{}, query.ErrTooLarge
	}
	offset, data, err := arena.Alloc(bytes)
	switch {
	case errors.Is(err, wire.ErrArenaFull):
		return query.Memory{}, query.ErrNoMemory
	case err != nil:
		return query.Memory{}, query.ErrUnavailable
	}
	return query.Memory{Bytes: data, Offset: offset}, nil
}

// Free implements Backend.
func (b *backend) Free(s *query.Service, m query.Memory) {
	if err := b.exec.Arena(s.ID).Free(m.Offset); err != nil {
		b.log.Error().Err(err).Str("service", s.Name).Msg("giving back the memory of a query")
	}
}

// Submit implements Backend.
func (b *backend) Submit(c *query.Call) error {
	if b.draining.Load() {
		return query.ErrDraining
	}
	p, ok := c.Backend.(*pending)
	if !ok {
		p = new(pending)
		c.Backend = p
	}
	p.call = c
	p.tensors = p.tensors[:0]
	for i := range c.Inputs {
		in := &c.Inputs[i]
		p.tensors = append(p.tensors, wire.Tensor{
			Type: in.Type, Shape: in.Shape, Offset: in.Offset, Bytes: int64(len(in.Data)),
		})
	}
	c.QueryID = models.QueryID(b.lastID.Add(1))
	select {
	case b.inbox <- message{call: c}:
	default:
		return query.ErrQueueFull
	}
	select {
	case <-b.ending:
		b.refuseAll() // the loop may have looked for the last time
	default:
	}
	return nil
}

// refuseAll answers the calls that the loop will not take any more. Every
// call in the inbox is answered by it: the loop runs it after ending is
// closed, and so does whoever put a call there and then finds ending closed.
func (b *backend) refuseAll() {
	for {
		select {
		case m := <-b.inbox:
			if m.call != nil {
				m.call.Answer(query.Reply{Err: query.ErrDraining})
			}
		default:
			return
		}
	}
}

// Cancel implements Backend. If the inbox is full the query runs in vain.
func (b *backend) Cancel(c *query.Call) {
	select {
	case b.inbox <- message{cancel: c.QueryID}:
	default:
	}
}

// Release implements Backend.
func (b *backend) Release(c *query.Call) {
	p := c.Backend.(*pending)
	p.outputs.Release()
	p.outputs.Outputs = nil
	p.call, p.failure = nil, nil
	b.Free(c.Service, c.Memory)
}

// Live implements Backend.
func (b *backend) Live() bool {
	return b.now()-time.Duration(b.beat.Load()) < stalled
}

// Ready implements Backend.
func (b *backend) Ready() bool {
	if b.draining.Load() {
		return false
	}
	for _, s := range b.Services() {
		if !s.Ready() {
			return false
		}
	}
	return true
}

// tell puts a message in the inbox. It may not be lost, so it waits: the loop
// drains its inbox for as long as there is somebody to tell.
func (b *backend) tell(m message) {
	select {
	case b.inbox <- m:
	case <-b.ending:
	}
}

// event passes what happens to the workers on to the loop.
func (b *backend) event(e executor.Event) { b.tell(message{event: &e}) }

// drain refuses further queries and lets those that were accepted finish.
func (b *backend) drain() {
	b.draining.Store(true)
	b.tell(message{drain: true})
}

// giveUp answers what was accepted and has not finished.
func (b *backend) giveUp() { b.tell(message{giveUp: true}) }

// ask runs f in the loop and waits for it. It reports false if the loop has
// ended.
func (b *backend) ask(f func(*loop)) bool {
	ran := make(chan struct{})
	b.tell(message{ask: func(l *loop) { f(l); close(ran) }})
	select {
	case <-ran:
		return true
	case <-b.done:
		return false
	}
}

// stopMeasuring measures nothing any more, and waits for the round that runs,
// until ctx ends.
func (b *backend) stopMeasuring(ctx context.Context) error {
	ended := make(chan struct{})
	b.tell(message{ask: func(l *loop) {
		l.learner.stop()
		l.learner.measurement.quit(ended)
	}})
	select {
	case <-ended:
	case <-b.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// newLoop makes the scheduler and its goroutine's state. Decisions are written
// to log, unless it is nil.
func (b *backend) newLoop(c config.Config, o learning.Options, log *journal.Writer, header journal.Header) error {
	members := make([]*member, len(c.Services))
	for i, s := range b.Services() {
		members[i] = &member{service: s, config: c.Services[i], series: s.ID, release: func() {}}
	}
	list, operators := make([]models.Service, len(members)), make([]int, len(members))
	for i, s := range members {
		list[i] = scheduled(s.service.ID, &s.config)
		operators[i] = list[i].Operators
	}
	solo, err := predictor.NewSolo(operators...)
	if err != nil {
		return err
	}
	p := predictor.New(solo)
	rules := overlap.Config{Services: list, Policy: c.Policy, Ways: c.Ways, Predictor: p, MaxRetries: maxRetries}
	var scheduler scheduler
	if log != nil {
		scheduler, err = journal.New(rules, log, header)
	} else {
		scheduler, err = overlap.New(rules)
	}
	if err != nil {
		return err
	}
	for i := range list {
		scheduler.Down(0, models.ServiceID(i))
	}
	b.timeline = timeline.New(b.epoch, list)
	shared := &core{
		backend: b, config: c, scheduler: scheduler, solo: solo, predictor: p,
		listeners: []observe.Listener{b.timeline, observe.NewTraces(b.epoch, b.device)},
	}
	if c.Metrics {
		b.metrics = metrics.NewRecorder(len(list))
		shared.listeners = append(shared.listeners, b.metrics)
	}
	shared.fleet = &fleet{core: shared, members: members, specs: list, order: c.Names(), loading: loading{}}
	shared.calls = &calls{core: shared, pending: make(map[models.QueryID]*pending)}
	shared.learner = &learner{core: shared, learning: learning.New(o, p, solo), measurement: measurement{exec: b.exec, fleet: shared.fleet}}
	b.loop = &loop{core: shared, timer: time.NewTimer(time.Hour)}
	return nil
}

// Timelines implements Host.
func (b *backend) Timelines() []*timeline.Ring { return []*timeline.Ring{b.timeline} }

// Limits on waiting for a status.
const (
	statusTimeout = 2 * time.Second        // of one who is to be answered
	scrapeTimeout = 100 * time.Millisecond // of a scrape, which is told what was published last
)

// Status implements Host.
func (b *backend) Status() (*status.Status, bool) { return b.statusWithin(statusTimeout) }

// statusWithin returns the status of now, or, if the scheduler goroutine does not
// publish one in time, the last one and false. That is nil if there was none.
func (b *backend) statusWithin(limit time.Duration) (s *status.Status, fresh bool) {
	published, first := b.board.Want()
	if first {
		select {
		case b.inbox <- message{}: // a goroutine that sleeps does not look at the board
		default: // it is awake
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-published:
		return b.board.Latest(), true
	case <-b.done:
	case <-timer.C:
	}
	return b.board.Latest(), false
}

func (b *backend) restart(s *query.Service) error {
	state, err := b.exec.State(s.ID)
	if err != nil {
		return err
	}
	r, ok := b.exec.(restarter)
	switch {
	case ok && state.Phase == executor.GivenUp:
		return r.Restart(s.ID)
	case s.GivenUp():
		return fmt.Errorf("%w, and the worker of this one runs: it is its model that cannot be served; change the model and reload", ErrNotGivenUp)
	}
	return fmt.Errorf("%w, and this one is %s", ErrNotGivenUp, state.Phase)
}

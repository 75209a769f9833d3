package loop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

var (
	// ErrEnded is returned when a loop that has ended is asked for something.
	ErrEnded = errors.New("the daemon is stopping: start it again with the new configuration")

	// ErrNotGivenUp is returned when a service was not given up, so that there
	// is nothing to try again.
	ErrNotGivenUp = errors.New("only a service that failed permanently can be restarted")
)

// Backend is a loop as others see it: endpoints, which ask for its services, and the daemon,
// which starts, reloads and stops it.
type Backend struct {
	env     *env
	loop    *loop
	running bool // the loop was started
	shut    sync.Once
}

// New makes a loop, which decides nothing before [Backend.Begin].
func New(c config.Config, o Options) (_ *Backend, err error) {
	e := &env{options: o, log: o.Log, config: c, mail: newMailbox()}
	e.breadth.most = o.Processors
	all := &services{env: e, order: c.Names(), families: map[string]*family{}, asleep: map[string]*asleep{}}
	defer func() {
		for i := 0; err != nil && i < len(all.list); i++ {
			err = errors.Join(err, all.closeInputs(all.list[i]))
		}
	}()
	var operators []int
	var inputs, moving []*wire.InputArena
	for i := range c.Services {
		id, s := models.ServiceID(i), newService(&c.Services[i], o.Places[i], len(o.Devices))
		if err = all.furnish(s, id); err != nil {
			return nil, err
		}
		spec := scheduled(id, &c.Services[i])
		all.list, all.specs = append(all.list, s), append(all.specs, spec)
		operators, inputs, moving = append(operators, spec.Operators), append(inputs, s.inputs), append(moving, s.moves)
	}
	if err = e.place(o.Devices, operators); err != nil {
		return nil, err
	}
	if err = e.schedule(all.specs, all); err != nil {
		return nil, err
	}
	e.timeline = timeline.New(e.mail.epoch, all.specs, e.names...)
	e.options.Listeners = append([]observe.Listener{e.timeline, observe.NewTraces(e.mail.epoch, e.texts, e.names)}, o.Listeners...)
	all.publish()
	b := &Backend{env: e, loop: newLoop(e, all)}
	for _, d := range e.devices {
		if d.exec, err = d.Workers(inputs, moving, b.loop.outcomes, func(e executor.Event) { b.Event(d.index, e) }); err != nil {
			return nil, errors.Join(err, b.closeWorkers())
		}
	}
	return b, nil
}

// Services implements [query.Host].
func (b *Backend) Services() []*query.Service { return b.env.registry.Services() }

// Service implements [query.Host].
func (b *Backend) Service(name []byte) *query.Service { return b.env.registry.Service(name) }

// Running returns the service, or the variant SERVICE/VARIANT, of a name, or nil.
func (b *Backend) Running(name string) *query.Service { return b.env.registry.Running(name) }

// NotReady implements [query.Host].
func (b *Backend) NotReady() *query.Error {
	switch {
	case b.Draining():
		return query.ErrDraining
	case b.Leaving():
		return query.ErrDrained
	case !query.AnyReady(b.Services(), b.env.config.Ready == config.ReadyAll):
		return query.ErrUnavailable
	}
	return nil
}

// Live implements [query.Host]: it reports whether the loop still turns.
func (b *Backend) Live() bool { return b.Now()-b.Beat() < Stalled }

// Now returns the time since the loop was made, by the monotonic clock.
func (b *Backend) Now() time.Duration { return b.env.now() }

// Beat returns when the loop last had nothing more to do.
func (b *Backend) Beat() time.Duration { return time.Duration(b.env.mail.beat.Load()) }

// Draining reports whether further queries are refused.
func (b *Backend) Draining() bool { return b.env.mail.draining.Load() }

// Leave sets whether the daemon reports that it is not ready. It continues to answer queries,
// because load balancers notice the change late.
func (b *Backend) Leave(leaves bool) { b.env.mail.leaving.Store(leaves) }

// Leaving reports whether the daemon says that it is not ready because it is to be stopped.
func (b *Backend) Leaving() bool { return b.env.mail.leaving.Load() }

// Ask runs f in the loop and waits for it. It reports false if the loop has ended.
func (b *Backend) Ask(f func()) bool { return b.env.mail.ask(f) }

// Broaden has this process use all processors that it may until release is called: for
// work that computes for more than a moment, or waits for a disk.
func (b *Backend) Broaden() (release func()) { return b.env.breadth.hold() }

// Begin lets the loop decide. The workers are started by whoever made them.
func (b *Backend) Begin() {
	b.running = true
	b.env.breadth.set(1)
	b.env.options.Goroutines.Go(b.loop.run)
}

// Event passes what happens to the workers of a device on to the loop.
func (b *Backend) Event(device int, e executor.Event) {
	b.env.mail.tell(func() { b.loop.workers.happened(b.env.devices[device], &e) })
}

// Start starts the workers.
func (b *Backend) Start() (err error) {
	for _, d := range b.env.devices {
		err = errors.Join(err, d.exec.Start(context.Background()))
	}
	return err
}

// Workers returns what runs rounds on a device.
func (b *Backend) Workers(device int) Workers { return b.env.devices[device].exec }

// Drain refuses further queries and lets those that were accepted finish.
func (b *Backend) Drain() {
	b.env.mail.draining.Store(true)
	b.env.mail.tell(func() { _ = b.env.step(overlap.Event{Kind: overlap.Drain}) })
}

// GiveUp answers what was accepted and has not finished.
func (b *Backend) GiveUp() { b.env.mail.tell(b.loop.calls.giveUp) }

// readGrace is how long Close waits for whoever reads the last answers to give back
// the memory of their queries, before it calls that a leak.
const readGrace = time.Second

// Close ends the workers, and then the loop.
func (b *Backend) Close() error {
	err := b.closeWorkers()
	b.shut.Do(func() { close(b.loop.outcomes) })
	if b.running {
		<-b.env.mail.done
	}
	end := time.Now().Add(readGrace)
	for _, s := range b.loop.services.list {
		for s != nil && s.inputs.Used() > 0 && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
		if s != nil {
			err = errors.Join(err, b.loop.services.closeInputs(s))
		}
	}
	return err
}

// closeWorkers ends the workers of all devices.
func (b *Backend) closeWorkers() error {
	errs := make([]error, len(b.env.devices))
	var all sync.WaitGroup
	for i, d := range b.env.devices {
		if d.exec != nil {
			all.Go(func() { errs[i] = d.exec.Close() })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// StopMeasuring measures nothing any more, and waits for the round that runs,
// until ctx ends.
func (b *Backend) StopMeasuring(ctx context.Context) error {
	for _, l := range b.loop.learners {
		ended := make(chan struct{})
		b.env.mail.tell(func() {
			l.stop()
			l.measurement.quit(ended)
		})
		select {
		case <-ended:
		case <-b.env.mail.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Measure lets the loop do nothing but measure, each kind of device for at most the limit.
// It must not have been started.
func (b *Backend) Measure(limit time.Duration) {
	for _, k := range b.env.kinds {
		k.learning.MeasureOnly(limit)
	}
}

// MeasuringReport returns how far measuring has come, and false if the loop has ended.
func (b *Backend) MeasuringReport() (r Report, ok bool) {
	ok = b.Ask(func() {
		r = Report{Services: len(b.loop.services.list), Over: true}
		for _, l := range b.loop.learners {
			r.add(l)
		}
		for _, s := range b.loop.services.served() {
			if s.entry.Ready() {
				r.Ready++
			}
			if s.entry.GivenUp.Load() {
				r.GivenUp = append(r.GivenUp, s.config.Name)
			}
		}
	})
	return r, ok
}

// Learned returns the operator times of each service that was ready once, and how well
// the predictors do, by the keys that they are stored by. Of an emulated device nothing
// is learned.
func (b *Backend) Learned() (solo map[string]predictor.Snapshot, calibrations map[string]predictor.CalibrationSnapshot) {
	solo, calibrations = map[string]predictor.Snapshot{}, map[string]predictor.CalibrationSnapshot{}
	b.Ask(func() {
		for _, k := range b.env.kinds {
			if k.devices[0].Emulated {
				continue
			}
			for _, s := range b.loop.services.served() {
				r := s.on(k)
				if p, err := k.solo.Snapshot(s.entry.ID); err == nil && s.info != nil && r != nil && len(p.Cells) > 0 {
					solo[k.profileKey(r.place.Share, s.info)] = p
				}
			}
			if c := k.predictor.Snapshot(); c.Predictor != "" {
				calibrations[b.loop.learners[k.index].calibrationKey(c.Predictor)] = c
			}
		}
	})
	return solo, calibrations
}

// Admit starts the workers of a service that queries cannot reach yet. Once they are
// ready the service takes the place of the one of its name, if there is one, or, if it is
// held, waits for [Backend.Replace].
func (b *Backend) Admit(c *config.Service, places []Place, held bool) (*Joining, error) {
	j := &Joining{held: held, News: make(chan config.Step, newsLimit), Ready: make(chan error, 1), service: newService(c, places, len(b.env.devices))}
	j.service.state, j.service.joining = stateJoining, j
	err := ErrEnded
	b.Ask(func() { err = b.loop.workers.open(j.service, places) })
	return j, err
}

// Replace has services that have loaded, and were held, answer in the place of others, in
// one step. It fails if a worker of them was lost meanwhile: nothing has changed then.
func (b *Backend) Replace(joined []*Joining, names []string) error {
	err := ErrEnded
	b.Ask(func() { err = b.loop.services.replace(joined, names) })
	return err
}

// Withdraw lets a service that was to join go again, unless it has joined. It
// reports false if the loop has ended.
func (b *Backend) Withdraw(j *Joining, cause error) bool {
	return b.Ask(func() { b.loop.services.withdraw(j.service, cause) })
}

// Retarget gives a service other targets, and other devices: it gets workers on those
// that are new to it, and those on devices that it leaves go as soon as another one
// serves. Other pipelines are taken once it has the workers that they need. Queries that
// were accepted keep their deadlines.
func (b *Backend) Retarget(c *config.Service, places []Place) error {
	err := ErrEnded
	b.Ask(func() {
		all := b.loop.services
		s := all.serving(c.Name)
		var next []models.Pipeline
		if next, err = all.routes(c, s.info); err == nil {
			err = all.change(s, c, places)
		}
		if err == nil {
			s.route.next, s.route.waits, s.route.refused = next, true, nil
			err = errors.Join(b.loop.workers.spread(s, places), all.follow(s))
		}
	})
	return err
}

// TakeAway lets a service take no further requests. It goes when it has answered
// those it has; gone is closed then. It reports false if the loop has ended.
func (b *Backend) TakeAway(name string, gone chan struct{}) bool {
	return b.Ask(func() { b.loop.services.retire(gone, b.loop.services.serving(name)) })
}

// Rest has requests find services without workers, which sleeper has loaded by [Backend.Admit]. One
// that serves answers the requests that it has first, and its workers end. gone, which is for one
// service, is closed then, unless it is nil. It reports false if the loop has ended.
func (b *Backend) Rest(gone chan struct{}, sleeper query.Sleeper, list ...config.Service) bool {
	return b.Ask(func() { b.loop.services.rest(gone, sleeper, list) })
}

// Forget removes a service that rests. It reports false if the loop has ended.
func (b *Backend) Forget(name string) bool {
	return b.Ask(func() {
		if a := b.loop.services.asleep[name]; a != nil {
			b.loop.services.wakeUp(a)
			b.loop.services.publish()
		}
	})
}

// Order lists the services in another order. It reports false if the loop has ended.
func (b *Backend) Order(names []string) bool {
	return b.Ask(func() {
		b.loop.services.order = names
		b.loop.services.publish()
	})
}

// LoseWorkers gives up every worker of a device, those too that come later, for a reason
// that is no service's own. With a nil error there may be workers again.
func (b *Backend) LoseWorkers(device int, err error) {
	b.env.mail.tell(func() { b.loop.workers.loseWorkers(b.env.devices[device], err) })
}

// StatusWithin returns the status of now, with the shapes of the predictor or without,
// or, if the loop does not publish one in time, the last one and false. That is empty
// if there was none.
func (b *Backend) StatusWithin(limit time.Duration, shapes bool) (_ *status.Status, fresh bool) {
	published, first := b.env.mail.board.Want(shapes)
	if first {
		select {
		case b.env.mail.inbox <- message{}: // a goroutine that sleeps does not look at the board
		default: // it is awake
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-published:
		fresh = true
	case <-b.env.mail.done:
	case <-timer.C:
	}
	var s status.Status
	if latest := b.env.mail.board.Latest(); latest != nil {
		s = *latest
	}
	now := b.Now()
	s.Age, s.BeatAge, s.Inbox, s.InboxLimit = now-s.At, now-b.Beat(), len(b.env.mail.inbox), cap(b.env.mail.inbox)
	return &s, fresh
}

// statusTimeout is how long a request waits for a status.
const statusTimeout = 2 * time.Second

// FullStatus returns how the loop stands, with the shapes of its predictor, or false if
// it does not say so in time.
func (b *Backend) FullStatus() (*status.Status, bool) { return b.StatusWithin(statusTimeout, true) }

// Timeline returns what remembers the last rounds.
func (b *Backend) Timeline() *timeline.Ring { return b.env.timeline }

// Restart starts the workers of a service that were given up, or fails with
// [ErrNotGivenUp].
func (b *Backend) Restart(s *query.Service) error {
	var phase executor.Phase
	restarted := false
	err := executor.ErrUnknownService
	for _, d := range b.env.devices {
		state, missing := d.exec.State(s.ID)
		if missing != nil {
			continue
		}
		if err, phase = nil, state.Phase; phase == executor.GivenUp {
			if err := d.exec.Restart(s.ID); err != nil {
				return err
			}
			restarted = true
		}
	}
	switch {
	case err != nil, restarted:
		return err
	case s.GivenUp.Load() && phase == executor.Ready:
		return fmt.Errorf("%w, and its worker still runs: the model cannot be served; change the model and reload", ErrNotGivenUp)
	}
	return fmt.Errorf("%w, and this one is %s", ErrNotGivenUp, phase)
}

package loop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
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

// maxRetries is how often a query is run again whose worker was lost.
const maxRetries = 2

var (
	// ErrEnded is returned when a loop that has ended is asked for something.
	ErrEnded = errors.New("the daemon is stopping: start it again with the new configuration")

	// ErrNotGivenUp is returned when a service was not given up, so that there
	// is nothing to try again.
	ErrNotGivenUp = errors.New("only a service that failed permanently can be restarted")
)

// Backend is what others know of a loop: those who ask for its services, and those
// who start, reload and stop it.
type Backend struct {
	*core
	loop    *loop
	running bool // the loop was started
	shut    sync.Once
}

// New makes a loop, which decides nothing before [Backend.Begin].
func New(c config.Config, o Options) (_ *Backend, err error) {
	shared := &core{Registry: new(query.Registry), Options: o, config: c}
	shared.breadth.most = o.Processors
	shared.epoch, shared.inbox = time.Now(), make(chan message, inboxLimit)
	shared.ending, shared.done = make(chan struct{}), make(chan struct{})
	b := &Backend{core: shared}
	members, list := make([]*member, len(c.Services)), make([]models.Service, len(c.Services))
	operators, inputs, moving := make([]int, len(c.Services)), make([]*wire.InputArena, len(c.Services)), make([]*wire.InputArena, len(c.Services))
	fleet := &fleet{core: shared, members: members, specs: list, order: c.Names(), families: map[string]*family{}, loading: loading{}}
	defer func() {
		for i := 0; err != nil && i < len(members) && members[i] != nil; i++ {
			err = errors.Join(err, fleet.closeInputs(members[i]))
		}
	}()
	for i := range c.Services {
		m := newMember(&c.Services[i], o.Places[i], len(o.Devices))
		if err = fleet.furnish(m, models.ServiceID(i)); err != nil {
			return nil, err
		}
		members[i], inputs[i], moving[i] = m, m.inputs, m.moves
		list[i] = scheduled(m.service.ID, &c.Services[i])
		operators[i] = list[i].Operators
	}
	if shared.pool, err = newPool(o.Devices, operators); err != nil {
		return nil, err
	}
	if err = shared.schedule(list, fleet); err != nil {
		return nil, err
	}
	b.timeline = timeline.New(b.epoch, list, shared.names()...)
	shared.Listeners = append([]observe.Listener{b.timeline, observe.NewTraces(b.epoch, shared.texts(), shared.names())}, o.Listeners...)
	fleet.publish()
	crew := &crew{fleet: fleet}
	overruns := &overruns{core: shared, held: map[models.BatchID][]heldQuery{}, learned: map[uint64]*predictor.Overrun{}}
	calls := &calls{core: shared, fleet: fleet, overruns: overruns, pending: make(map[models.QueryID]*pending)}
	calls.moves = &moves{core: shared, fleet: crew, calls: calls, open: map[uint64]overlap.Move{}}
	fleet.answerOver = calls.answer
	var learners []*learner
	for _, k := range shared.kinds {
		of := o.Learning
		of.Emulated, of.Alone = k.devices[0].Emulated, k.devices[0].Alone
		k.learning = learning.New(of, k.predictor, k.solo)
		l := &learner{core: shared, kind: k, fleet: crew, learning: k.learning, measurement: measurement{fleet: crew}}
		l.again = again{fleet: fleet, kind: k, seen: map[models.ServiceID]string{}}
		k.bind, k.stop, k.reads, learners = l.bind, l.stop, l.measurement.reads, append(learners, l)
	}
	b.loop = &loop{core: shared, fleet: crew, learners: learners, calls: calls, overruns: overruns, timer: time.NewTimer(time.Hour)}
	shared.outcomes = make(chan executor.Outcome, len(o.Devices)*executor.MaxOutcomes)
	for _, d := range shared.devices {
		if d.exec, err = d.Workers(inputs, moving, shared.outcomes, func(e executor.Event) { b.Event(d.index, e) }); err != nil {
			return nil, errors.Join(err, b.closeWorkers())
		}
	}
	return b, nil
}

// schedule makes the scheduler of services, which are all down, and records it if decisions are
// logged.
func (c *core) schedule(list []models.Service, by overlap.Selector) error {
	rules := overlap.Config{Services: list, Policy: c.config.Policy, Ways: c.config.Ways, MaxRetries: maxRetries, RoundTime: overlap.DefaultRoundTime, Selector: by}
	for _, d := range c.devices {
		if d.Emulated { // the emulation charges nothing for a round
			rules.RoundTime = 0
		}
		rules.Devices = append(rules.Devices, d.kind.predictor)
		rules.Alone = append(rules.Alone, d.Alone)
	}
	if !slices.Contains(rules.Alone, true) {
		rules.Alone = nil
	}
	if c.Journal != nil {
		c.Header.Epoch = c.epoch
		tee, err := journal.New(rules, c.Journal, c.Header)
		if err != nil {
			return err
		}
		c.door, c.scheduler = tee, tee.Scheduler
	} else {
		s, err := overlap.New(rules)
		if err != nil {
			return err
		}
		c.door, c.scheduler = s, s
	}
	for i := range list {
		for _, d := range c.devices {
			_ = c.step(overlap.Event{Kind: overlap.Down, Service: models.ServiceID(i), Device: d.index})
		}
	}
	return nil
}

// Begin lets the loop decide. The workers are started by whoever made them.
func (b *Backend) Begin() {
	b.running = true
	b.breadth.set(1)
	b.Goroutines.Go(b.loop.run)
}

// Event passes what happens to the workers of a device on to the loop.
func (b *Backend) Event(device int, e executor.Event) {
	b.tell(message{ask: func() { b.loop.fleet.happened(b.devices[device], &e) }})
}

// Start starts the workers.
func (b *Backend) Start() (err error) {
	for _, d := range b.devices {
		err = errors.Join(err, d.exec.Start(context.Background()))
	}
	return err
}

// Workers returns what runs rounds on a device.
func (b *Backend) Workers(device int) Workers { return b.devices[device].exec }

// Drain refuses further queries and lets those that were accepted finish.
func (b *Backend) Drain() {
	b.draining.Store(true)
	b.tell(message{ask: func() { _ = b.step(overlap.Event{Kind: overlap.Drain}) }})
}

// GiveUp answers what was accepted and has not finished.
func (b *Backend) GiveUp() { b.tell(message{ask: b.loop.calls.giveUp}) }

// readGrace is how long Close waits for whoever reads the last answers to give back
// the memory of their queries, before it calls that a leak.
const readGrace = time.Second

// Close ends the workers, and then the loop.
func (b *Backend) Close() error {
	err := b.closeWorkers()
	b.shut.Do(func() { close(b.outcomes) })
	if b.running {
		<-b.done
	}
	end := time.Now().Add(readGrace)
	for _, s := range b.loop.fleet.members {
		for s != nil && s.inputs.Used() > 0 && time.Now().Before(end) {
			time.Sleep(time.Millisecond)
		}
		if s != nil {
			err = errors.Join(err, b.loop.fleet.closeInputs(s))
		}
	}
	return err
}

// closeWorkers ends the workers of all devices.
func (c *core) closeWorkers() error {
	errs := make([]error, len(c.devices))
	var all sync.WaitGroup
	for i, d := range c.devices {
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
		b.tell(message{ask: func() {
			l.stop()
			l.measurement.quit(ended)
		}})
		select {
		case <-ended:
		case <-b.done:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Measure lets the loop do nothing but measure, each kind of device for at most the limit.
// It must not have been started.
func (b *Backend) Measure(limit time.Duration) {
	for _, k := range b.kinds {
		k.learning.MeasureOnly(limit)
	}
}

// MeasuringReport returns how far measuring has come, and false if the loop has ended.
func (b *Backend) MeasuringReport() (r Report, ok bool) {
	ok = b.Ask(func() {
		r = Report{Services: len(b.loop.fleet.members), Over: true}
		for _, l := range b.loop.learners {
			r.add(l)
		}
		for _, s := range b.loop.fleet.served() {
			if s.service.Ready() {
				r.Ready++
			}
			if s.service.GivenUp.Load() {
				r.GivenUp = append(r.GivenUp, s.config.Name)
			}
		}
	})
	return r, ok
}

// Learned returns the operator times of each service that was ready once, and how well
// the predictors do, by the keys to ask [Profiles] for that. Of an emulated device nothing
// is learned.
func (b *Backend) Learned() (solo map[string]predictor.Snapshot, calibrations map[string]predictor.CalibrationSnapshot) {
	solo, calibrations = map[string]predictor.Snapshot{}, map[string]predictor.CalibrationSnapshot{}
	b.Ask(func() {
		for _, k := range b.kinds {
			if k.devices[0].Emulated {
				continue
			}
			for _, s := range b.loop.fleet.served() {
				r := s.on(k)
				if p, err := k.solo.Snapshot(s.service.ID); err == nil && s.info != nil && r != nil && len(p.Cells) > 0 {
					solo[k.profileKey(r.Share, s.info)] = p
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
	j := &Joining{held: held, News: make(chan config.Step, newsLimit), Ready: make(chan error, 1), member: newMember(c, places, len(b.devices))}
	j.member.state, j.member.joining = stateJoining, j
	err := ErrEnded
	b.Ask(func() { err = b.loop.fleet.open(j.member, places) })
	return j, err
}

// Replace has services that have loaded, and were held, answer in the place of others, in
// one step. It fails if a worker of them was lost meanwhile: nothing has changed then.
func (b *Backend) Replace(joined []*Joining, names []string) error {
	err := ErrEnded
	b.Ask(func() { err = succession{b.loop.fleet.fleet}.replace(joined, names) })
	return err
}

// Withdraw lets a service that was to join go again, unless it has joined. It
// reports false if the loop has ended.
func (b *Backend) Withdraw(j *Joining, cause error) bool {
	return b.Ask(func() { b.loop.fleet.withdraw(j.member, cause) })
}

// Retarget gives a service other targets, and other devices: it gets workers on those
// that are new to it, and those on devices that it leaves go as soon as another one
// serves. Other pipelines are taken once it has the workers that they need. Queries that
// were accepted keep their deadlines.
func (b *Backend) Retarget(c *config.Service, places []Place) error {
	err := ErrEnded
	b.Ask(func() {
		f := b.loop.fleet
		s := f.serving(c.Name)
		var next []models.Pipeline
		if next, err = f.routes(c, s.info); err == nil {
			err = f.change(s, c, places)
		}
		if err == nil {
			s.route.next, s.route.waits, s.route.refused = next, true, nil
			err = errors.Join(f.spread(s, places), f.follow(s))
		}
	})
	return err
}

// TakeAway lets a service take no further requests. It goes when it has answered
// those it has; gone is closed then. It reports false if the loop has ended.
func (b *Backend) TakeAway(name string, gone chan struct{}) bool {
	return b.Ask(func() { b.loop.fleet.retire(gone, b.loop.fleet.serving(name)) })
}

// Order lists the services in another order. It reports false if the loop has ended.
func (b *Backend) Order(names []string) bool {
	return b.Ask(func() {
		b.loop.fleet.order = names
		b.loop.fleet.publish()
	})
}

// LoseWorkers gives up every worker of a device, those too that come later, for a reason
// that is no service's own. With a nil error there may be workers again.
func (b *Backend) LoseWorkers(device int, err error) {
	b.tell(message{ask: func() { b.loop.fleet.loseWorkers(b.devices[device], err) }})
}

// StatusWithin returns the status of now, with the shapes of the predictor or without,
// or, if the loop does not publish one in time, the last one and false. That is empty
// if there was none.
func (b *Backend) StatusWithin(limit time.Duration, shapes bool) (_ *status.Status, fresh bool) {
	published, first := b.board.Want(shapes)
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
		fresh = true
	case <-b.done:
	case <-timer.C:
	}
	var s status.Status
	if latest := b.board.Latest(); latest != nil {
		s = *latest
	}
	now := b.Now()
	s.Age, s.BeatAge, s.Inbox, s.InboxLimit = now-s.At, now-b.Beat(), len(b.inbox), cap(b.inbox)
	return &s, fresh
}

// statusTimeout is how long one who is to be answered waits for a status.
const statusTimeout = 2 * time.Second

// FullStatus returns how the loop stands, with the shapes of its predictor, or false if
// it does not say so in time.
func (b *Backend) FullStatus() (*status.Status, bool) { return b.StatusWithin(statusTimeout, true) }

// Timeline returns what remembers the last rounds.
func (b *Backend) Timeline() *timeline.Ring { return b.timeline }

// Restart starts the workers of a service that were given up, or fails with
// [ErrNotGivenUp].
func (c *core) Restart(s *query.Service) error {
	var phase executor.Phase
	restarted := false
	err := executor.ErrUnknownService
	for _, d := range c.devices {
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

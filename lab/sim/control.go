package sim

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// Scheduler decides what the devices of a control run. [overlap.Scheduler] implements it, and
// describes the methods.
type Scheduler interface {
	Step(now time.Duration, e *overlap.Event) error
	Ended() bool
	Ready(now time.Duration) overlap.Ready
	Advance(now time.Duration)
	Metrics() overlap.Metrics
	Check() error
}

// overruns is implemented by a Scheduler that starts further rounds while a span overruns.
// Without it, a round ends when all its spans have ended.
type overruns interface {
	Allowed(device int, bound time.Duration, factor float64) time.Duration
	Unanswered(id models.BatchID) (waiting []models.QueryID, all bool)
}

// control is a scheduler with the devices for which it decides.
type control struct {
	world     *world
	number    int
	scheduler Scheduler

	// event is the event that the scheduler received last. It is reused, so that events do not
	// allocate.
	event overlap.Event

	asking asking
	nodes  []*node
}

// newControl creates the scheduler with this number. It decides for the given number of
// devices, beginning with device number*devices.
func newControl(w *world, number, devices int) (*control, error) {
	c := &control{world: w, number: number}
	known := map[int]*informant{}
	var informants []overlap.Predictor
	var units []int
	var alone []bool
	for i := range devices {
		n := newNode(c, number*devices+i)
		if known[n.kind] == nil {
			p, err := w.newPredictor(n.device)
			if err != nil {
				return nil, err
			}
			known[n.kind] = &informant{p, w.scenario.Knows, n.slow, &c.asking}
		}
		n.predictor = known[n.kind].Predictor
		_, cores := n.device.(*Cores)
		informants, units, alone = append(informants, known[n.kind]), append(units, len(n.lanes)), append(alone, cores)
		c.nodes, w.nodes[n.index] = append(c.nodes, n), n
	}
	if slices.Max(units) == 1 {
		units, alone = nil, nil
	}
	var err error
	c.scheduler, err = w.scenario.newScheduler(overlap.Config{
		Services: w.services, Policy: w.scenario.Policy, Devices: informants, Links: w.scenario.Links, Units: units, Alone: alone,
		Ways: w.scenario.Ways, MaxRetries: w.scenario.MaxRetries, RoundTime: cmp.Or(w.scenario.RoundTime, overlap.DefaultRoundTime), Selector: w.scenario.Selector,
	})
	if err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		for i := range w.scenario.Services {
			if on := w.scenario.Services[i].On; len(on) > 0 && !slices.Contains(on, n.index) {
				n.down[i] = true
				if err := c.step(overlap.Event{Kind: overlap.Down, Service: models.ServiceID(i), Device: n.place}); err != nil {
					return nil, err
				}
			}
		}
	}
	return c, nil
}

// newScheduler returns the scheduler of a scenario.
func (sc *Scenario) newScheduler(c overlap.Config) (Scheduler, error) {
	if sc.Scheduler != nil {
		return sc.Scheduler(c)
	}
	return overlap.New(c)
}

// newPredictor returns what predicts the devices of a kind.
func (w *world) newPredictor(d Device) (*predictor.Predictor, error) {
	solo, err := soloTable(w.scenario, d, w.bound)
	if err != nil {
		return nil, err
	}
	p := predictor.New(solo)
	if w.bind != nil {
		err = p.Use(w.scenario.Predictor, w.bind)
	}
	return p, err
}

// arrive passes a query to the scheduler, and records it as refused if the scheduler rejects it.
func (c *control) arrive(number int) error {
	c.touched()
	q, sv := &c.world.submitted[number], &c.world.scenario.Services[c.world.submitted[number].Service]
	c.event = overlap.Event{Kind: overlap.Arrive, Query: models.Query{
		ID: models.QueryID(number + 1), Service: q.Service, Size: q.Size, SeqLen: q.SeqLen,
		Arrival: q.At, Deadline: c.world.due(q), Priority: sv.Priority,
	}}
	if err := c.scheduler.Step(c.world.now, &c.event); err != nil {
		c.world.refused(c.nodes[0].index, number, err)
		return nil
	}
	c.world.cluster.moved(number, c.number, 1)
	c.world.with[number] = int32(c.number)
	return c.check()
}

// step passes an event to the scheduler and processes what has ended with it. A balancer must
// know of an answer before a query that arrives at the same instant.
func (c *control) step(e overlap.Event) error {
	c.event = e
	if err := c.scheduler.Step(c.world.now, &c.event); err != nil {
		return err
	}
	if c.scheduler.Ended() {
		r := c.scheduler.Ready(c.world.now) // it decides nothing while something has ended
		return c.settle(&r)
	}
	return c.check()
}

// check checks the scheduler's invariants if the scenario asks for it.
func (c *control) check() error {
	if !c.world.scenario.Check {
		return nil
	}
	if err := c.scheduler.Check(); err != nil {
		return fmt.Errorf("%w: device %d at %v: %w", ErrInvariant, c.nodes[0].index, c.world.now, err)
	}
	return nil
}

// touched makes the scheduler decide at this instant, because something has happened.
func (c *control) touched() { c.world.wakes.set(c.number, int64(c.world.now)) }

// decide starts the next rounds on idle devices.
func (c *control) decide() error {
	c.asking.choosing = true
	defer func() { c.asking.choosing = false }()
	for {
		began := c.clock()
		r := c.scheduler.Ready(c.world.now)
		took := c.clock().Sub(began)
		if err := c.settle(&r); err != nil {
			return err
		}
		if r.Round != nil {
			n := c.nodes[r.Round.Device].lanes[r.Round.Slot]
			if err := n.start(r.Round); err != nil {
				return err
			}
			n.round.Decision, n.round.Calls, n.round.Groups = took, c.asking.calls, c.asking.groups
			c.asking.calls, c.asking.groups = 0, 0
		}
		c.world.wakes.set(c.number, int64(r.Wake))
		if r.Wake > c.world.now || r.Round == nil && !r.Ended() {
			break
		}
	}
	if c.world.scenario.Plan {
		c.scheduler.Advance(c.world.now)
	}
	return nil
}

// clock returns the real time if an observer needs it, and the zero time otherwise. The
// simulation does not depend on it.
func (c *control) clock() (t time.Time) {
	if c.world.scenario.Observer.Round != nil {
		t = time.Now()
	}
	return t
}

// settle processes the moves, stops and answers that the scheduler has returned.
func (c *control) settle(r *overlap.Ready) error {
	for _, m := range r.Moves {
		if err := c.move(m); err != nil {
			return err
		}
	}
	for _, stop := range r.Stops {
		c.nodes[stop.Device].stop(stop.Batch)
	}
	for i := range r.Answers {
		a := &r.Answers[i]
		if err := c.world.answered(c, a); err != nil {
			return err
		}
		if o, ok := c.scheduler.(overruns); ok && a.InUse {
			if waiting, _ := o.Unanswered(a.Batch); len(waiting) == 0 {
				c.nodes[a.Device].abandon(a.Batch)
			}
		}
		c.world.cluster.moved(int(a.Query)-1, c.number, -1)
	}
	return c.check()
}

// cancel tells the scheduler that a client has left. A batch without other clients stops at
// the next operator.
func (c *control) cancel(number int) error {
	c.touched()
	return c.step(overlap.Event{Kind: overlap.Cancel, Query: models.Query{ID: models.QueryID(number + 1)}})
}

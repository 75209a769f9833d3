package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// control is a scheduler with the devices for which it decides.
type control struct {
	*world
	number    int
	scheduler *overlap.Scheduler
	asking    asking
	nodes     []*node
}

// newControl creates the scheduler with this number. It decides for the given number of
// devices, beginning with device number*devices.
func newControl(w *world, number, devices int) (*control, error) {
	c := &control{world: w, number: number}
	known := map[int]*informant{}
	var informants []overlap.Predictor
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
		informants = append(informants, known[n.kind])
		c.nodes, w.nodes[n.index] = append(c.nodes, n), n
	}
	var err error
	c.scheduler, err = overlap.New(overlap.Config{
		Services: w.services, Policy: w.scenario.Policy, Devices: informants, Links: w.scenario.Links,
		Ways: w.scenario.Ways, MaxRetries: w.scenario.MaxRetries, Selector: w.scenario.Selector,
	})
	if err != nil {
		return nil, err
	}
	for _, n := range c.nodes {
		for i := range w.scenario.Services {
			if on := w.scenario.Services[i].On; len(on) > 0 && !slices.Contains(on, n.index) {
				n.down[i] = true
				c.scheduler.Down(0, models.ServiceID(i), n.place)
			}
		}
	}
	return c, nil
}

// newPredictor returns the predictor for devices like d.
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

// arrive passes a query to the scheduler. It returns false if the scheduler rejects the
// query.
func (c *control) arrive(number int) bool {
	c.touched()
	q, sv := &c.submitted[number], &c.scenario.Services[c.submitted[number].Service]
	err := c.scheduler.Arrive(c.now, models.Query{
		ID: models.QueryID(number + 1), Service: q.Service, Size: q.Size, SeqLen: q.SeqLen,
		Arrival: q.At, Deadline: c.due(q), Priority: sv.Priority,
	})
	if err != nil {
		c.refused(c.nodes[0].index, number, err)
		return false
	}
	c.cluster.moved(number, c.number, 1)
	c.with[number] = int32(c.number)
	return true
}

// touched makes the scheduler decide at this instant, because something has happened.
func (c *control) touched() { c.wakes.set(c.number, int64(c.now)) }

// decide starts the next rounds on idle devices.
func (c *control) decide() error {
	c.asking.choosing = true
	defer func() { c.asking.choosing = false }()
	for {
		began := c.clock()
		r, ok := c.scheduler.Next(c.now)
		took := c.clock().Sub(began)
		if err := c.settle(); err != nil {
			return err
		}
		if !ok {
			break
		}
		n := c.nodes[r.Device]
		if err := n.start(&r); err != nil {
			return err
		}
		n.round.Decision, n.round.Calls, n.round.Groups = took, c.asking.calls, c.asking.groups
		c.asking.calls, c.asking.groups = 0, 0
	}
	if c.scenario.Plan {
		c.scheduler.Plan(c.now)
	}
	wake := never
	if at, ok := c.scheduler.Wake(); ok {
		wake = at
	}
	c.wakes.set(c.number, int64(wake))
	return nil
}

// clock returns the real time if an observer needs it, and the zero time otherwise. The
// simulation does not depend on it.
func (c *control) clock() (t time.Time) {
	if c.scenario.Observer.Round != nil {
		t = time.Now()
	}
	return t
}

// settle processes the moves, stops and answers that the scheduler has produced. If the
// scenario asks for it, settle also checks the scheduler's invariants.
func (c *control) settle() error {
	c.scheduler.Released()
	for _, m := range c.scheduler.Moves() {
		if err := c.move(m); err != nil {
			return err
		}
	}
	for _, stop := range c.scheduler.Stops() {
		c.nodes[stop.Device].stop(stop.Batch)
	}
	for _, a := range c.scheduler.Answers() {
		if err := c.answered(c, &a); err != nil {
			return err
		}
		if waiting, _ := c.scheduler.Unanswered(a.Batch); a.InUse && len(waiting) == 0 {
			c.nodes[a.Device].abandon(a.Batch)
		}
		c.cluster.moved(int(a.Query)-1, c.number, -1)
	}
	if !c.scenario.Check {
		return nil
	}
	if err := c.scheduler.Check(); err != nil {
		return fmt.Errorf("%w: device %d at %v: %w", ErrInvariant, c.nodes[0].index, c.now, err)
	}
	return nil
}

// cancel tells the scheduler that a client has left. A batch without other clients stops at
// the next operator.
func (c *control) cancel(number int) error {
	c.touched()
	if stop, _ := c.scheduler.Cancel(c.now, models.QueryID(number+1)); stop.Batch != 0 {
		c.nodes[stop.Device].stop(stop.Batch)
	}
	return c.settle()
}

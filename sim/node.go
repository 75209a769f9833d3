package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/stats"
)

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// node is one device.
type node struct {
	*control
	index     int // of all
	place     int // of those of its scheduler
	device    Device
	slow      float64
	kind      int                  // the first device that is like it
	predictor *predictor.Predictor // of all devices of its scheduler that are like it
	noise     *rand.Rand
	failing   *rand.Rand
	down      []bool // by service, while its worker is lost
	busy      time.Duration

	// The round that runs will be over at its End, with this outcome. on is its group
	// as the device knows it, by models instead of services.
	running bool
	round   Round
	limit   time.Duration // when the round is over at the latest
	late    []*late       // the spans that it was then over without
	group   models.Group  // as the scheduler knows it
	queries []models.QueryID
	outcome models.Outcome
	on      models.Group
}

func newNode(c *control, index int) *node {
	d, slow, kind := c.scenario.kind(index)
	return &node{
		control: c, index: index, place: len(c.nodes), device: d, slow: slow, kind: kind,
		noise:   stream(c.scenario.Seed, forNoise, index),
		failing: stream(c.scenario.Seed, forFailing, index),
		down:    make([]bool, len(c.scenario.Services)),
	}
}

// start runs a round, whose time is known from now on.
func (n *node) start(r *overlap.Round) error {
	n.running = true
	at := n.now
	if !r.Planned {
		at += n.scenario.DecisionTime
	}
	n.on.Spans = n.on.Spans[:0]
	n.outcome.Round, n.outcome.Device, n.outcome.Spans = r.Number, r.Device, n.outcome.Spans[:0]
	for i, s := range r.Group.Spans {
		if n.down[s.Service] {
			return fmt.Errorf("%w: round %d runs service %d, whose worker is lost", ErrInvariant, r.Number, s.Service)
		}
		o := models.SpanOutcome{Span: s, Reached: s.End}
		if n.scenario.Faults.Failing > 0 && n.failing.Float64() < n.scenario.Faults.Failing {
			o.Status = models.SpanFailed
		}
		if s.End == n.services[s.Service].Operators && slices.ContainsFunc(r.Queries[i], func(id models.QueryID) bool { return n.bad[id] }) {
			o.Status = models.SpanFailed
		}
		n.outcome.Spans = append(n.outcome.Spans, o)
		s.Service = models.ServiceID(n.bound[s.Service])
		n.on.Spans = append(n.on.Spans, s)
	}
	took := max(scaled(n.device.Sample(n.on, n.noise), n.slow), 1)
	n.round.Number, n.round.Planned, n.round.Predicted = r.Number, r.Planned, r.Predicted
	n.round.Chosen, n.round.Start, n.round.Took = n.now, at, took
	n.round.End = at + n.scenario.RoundTime + took
	n.limit = n.limitOf(at+n.scenario.RoundTime, r.Predicted.Bound)
	n.ends.set(n.index, int64(min(n.round.End, n.limit)))
	n.round.Spans = append(n.round.Spans[:0], r.Group.Spans...)
	n.group = models.Group{Spans: n.round.Spans}
	if n.scenario.Observer.Round != nil {
		// The scheduler's memory of who is in the round does not last.
		n.queries, n.round.Queries = n.queries[:0], n.round.Queries[:0]
		for _, in := range r.Queries {
			from := len(n.queries)
			n.queries = append(n.queries, in...)
			n.round.Queries = append(n.round.Queries, n.queries[from:])
		}
	}
	n.tally.started(r)
	return nil
}

// finish ends the round: the predictor learns from it, the scheduler goes on.
func (n *node) finish() error {
	if n.now < n.round.End {
		n.setApart()
	}
	n.running = false
	n.ends.set(n.index, int64(never))
	n.touched()
	n.outcome.Took = n.round.End - n.round.Start
	for i := range n.outcome.Spans {
		n.outcome.Spans[i].Took = n.round.Took
	}
	if n.whole() {
		_ = n.predictor.Observe(n.now, n.group, scaled(n.took(), 1/n.slow)) // the daemon goes on as well with one that is out of range
	}
	n.busy += n.round.Took
	n.tally.ended(n)
	if n.scenario.Observer.Round != nil {
		n.round.Device, n.round.Outcome = n.index, n.outcome
		n.scenario.Observer.Round(&n.round)
	}
	if err := n.scheduler.Finish(n.now, n.outcome); err != nil {
		return fmt.Errorf("%w: %w", ErrInvariant, err)
	}
	return n.settle()
}

// whole reports whether all spans ran to their ends.
func (n *node) whole() bool {
	return !slices.ContainsFunc(n.outcome.Spans, func(o models.SpanOutcome) bool { return o.Status != models.SpanDone })
}

// took is what the predictor learns from: of one span its own time, of several
// that of the round.
func (n *node) took() time.Duration {
	if len(n.round.Spans) == 1 {
		return n.round.Took
	}
	return n.outcome.Took
}

// stop has a batch stop at the next operator.
func (n *node) stop(batch models.BatchID) {
	for i, s := range n.round.Spans {
		o := &n.outcome.Spans[i]
		if s.Batch != batch || o.Status != models.SpanDone {
			continue
		}
		begun := min(max(float64(n.now-n.round.Start)/float64(n.round.Took), 0), 1)
		o.Status = models.SpanStopped
		o.Reached = min(s.Start+int(math.Ceil(begun*float64(s.Len()))), s.End)
		if len(n.round.Spans) == 1 {
			part := float64(o.Reached-s.Start) / float64(s.Len())
			n.cut(n.round.Start + n.scenario.RoundTime + time.Duration(part*float64(n.round.Took)))
		}
	}
}

// die loses the worker of a service and what it runs. A round that has nothing
// left to run ends.
func (n *node) die(service models.ServiceID) error {
	n.touch(service, true)
	n.scheduler.Down(n.now, service, n.place)
	if n.running {
		left := 0
		for i, s := range n.round.Spans {
			o := &n.outcome.Spans[i]
			if s.Service == service {
				o.Status, o.Reached = models.SpanLost, s.Start
			}
			if o.Status != models.SpanLost {
				left++
			}
		}
		if left == 0 {
			n.cut(n.now)
		}
	}
	if err := n.loseLate(service); err != nil {
		return err
	}
	if err := n.loseMoves(n, service); err != nil {
		return err
	}
	return n.settle()
}

// touch takes in that a worker was lost or is back.
func (n *node) touch(service models.ServiceID, down bool) {
	n.touched()
	n.down[service] = down
	if n.scenario.Observer.worker != nil {
		n.scenario.Observer.worker(n.index, service, n.now, !down)
	}
}

// cut ends the round earlier.
func (n *node) cut(end time.Duration) {
	n.round.End = min(n.round.End, max(end, n.now))
	n.ends.set(n.index, int64(min(n.round.End, n.limit)))
	n.round.Took = min(n.round.Took, max(n.round.End-n.round.Start, 1))
}

func (n *node) back(service models.ServiceID) error {
	n.touch(service, false)
	n.scheduler.Up(n.now, service, n.place)
	return n.settle()
}

// What the scheduler knows of how long groups take: Scenario.Knows. With less than all
// of it a query is dropped only once its deadline has passed, and otherwise runs even if it ends late, as on the
// server of the Abacus authors (section 7.1): nothing under its fcfs and edf,
// the order under its sjf. Nothing is overlapped or merged then.
const (
	KnowsAll     = "all"
	KnowsOrder   = "order"   // when it puts queries into their order, and not when it chooses a group
	KnowsNothing = "nothing" // not even when it orders
)

var knowledges = []string{KnowsAll, KnowsOrder, KnowsNothing}

// asking is set to choosing while a scheduler is asked for a group. It counts the calls of
// its predictors since the last round, and the groups that they were about.
type asking struct {
	choosing bool
	calls    int
	groups   int
}

// informant is the predictor of a scheduler that may not know everything. What it
// withholds is unknown to the scheduler, so that nothing is dropped for it. What it says of
// a slow device is so many times what it says of others.
type informant struct {
	*predictor.Predictor
	knows string
	slow  float64
	*asking
}

// scaled is so many times a time.
func scaled(d time.Duration, factor float64) time.Duration {
	if factor == 1 {
		return d
	}
	return time.Duration(float64(d) * factor)
}

func (p *informant) Predict(groups []models.Group, estimates []models.Estimate) {
	p.calls++
	p.groups += len(groups)
	if p.knows == KnowsNothing || p.knows == KnowsOrder && p.choosing {
		clear(estimates)
		return
	}
	p.Predictor.Predict(groups, estimates)
	for i := range estimates {
		e := &estimates[i]
		e.Latency, e.Bound = scaled(e.Latency, p.slow), scaled(e.Bound, p.slow)
	}
}

// soloTable measures the services alone on a device, as a profile would: the middle of the
// runs of every operator, for the sizes and sequence lengths that the device
// was measured with and those that the service is asked for.
func soloTable(sc *Scenario, d Device, bound []int) (*predictor.Solo, error) {
	known := d.Models()
	operators := make([]int, len(bound))
	for i, m := range bound {
		operators[i] = known[m].Operators
	}
	table, err := predictor.NewSolo(operators...)
	if err != nil {
		return nil, err
	}
	for i, m := range bound {
		sizes, seqLens := soloShapes(&sc.Services[i], &known[m])
		for _, seqLen := range seqLens {
			for _, size := range sizes {
				if err := table.SetOperators(models.ServiceID(i), size, seqLen, d.OperatorTimes(m, size, seqLen)); err != nil {
					return nil, err
				}
			}
		}
	}
	return table, nil
}

// soloShapes returns the sizes and sequence lengths that fit into a table.
func soloShapes(s *Service, m *device.ModelInfo) (sizes, seqLens []int) {
	sizes = sorted(m.Sizes, s.Sizes, []int{max(s.MaxBatch, 1)})
	seqLens = sorted(m.SeqLens, s.SeqLens)
	if len(seqLens) == 0 {
		seqLens = []int{0}
	}
	seqLens = stats.Thin(seqLens, predictor.MaxCells/2)
	return stats.Thin(sizes, max(predictor.MaxCells/len(seqLens), 1)), seqLens
}

// sorted returns what is in any of the lists, once.
func sorted(lists ...[]int) []int {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

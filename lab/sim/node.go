package sim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

// never is later than all other times.
const never = time.Duration(math.MaxInt64)

// node is a device of the simulation.
type node struct {
	world   *world
	control *control

	// index is the position among all devices. place is the position among the devices of
	// the scheduler.
	index int
	place int

	device Device
	slow   float64

	// kind is the index of the first device that is like this one. predictor is shared by
	// all devices of the scheduler that are alike.
	kind      int
	predictor *predictor.Predictor

	noise   *rand.Rand
	failing *rand.Rand

	// down says for each service whether its worker is lost.
	down []bool

	// busy is the time that the device has worked, each unit for its part.
	busy time.Duration

	// lanes are the rounds that it runs at once: one for each of its units. late lists the
	// overruns that are still running.
	lanes []*lane
	late  []*late
}

// lane is a round of a device, or the last one that ended there.
type lane struct {
	*node

	// number is the position in world.lanes.
	number int

	// round is the current round if running is set. outcome is how it will end if nothing
	// changes.
	running bool
	round   Round

	// limit is the time at which the current round is over at the latest.
	limit time.Duration

	// group is the round's group as the scheduler knows it. on is the same group for the
	// device, with positions of models instead of services.
	group models.Group

	queries []models.QueryID
	outcome models.Outcome
	on      models.Group
}

// newNode creates the device with this index.
func newNode(c *control, index int) *node {
	d, slow, kind := c.world.scenario.kind(index)
	n := &node{
		world: c.world, control: c, index: index, place: len(c.nodes), device: d, slow: slow, kind: kind,
		noise:   stream(c.world.scenario.Seed, forNoise, index),
		failing: stream(c.world.scenario.Seed, forFailing, index),
		down:    make([]bool, len(c.world.scenario.Services)),
	}
	for i := range unitsOf(d, c.world.scenario.Policy) {
		l := &lane{node: n, number: len(c.world.lanes)}
		if old := c.world.nodes[index]; old != nil { // a pod that is replaced
			l.number = old.lanes[i].number
			c.world.lanes[l.number] = l
		} else {
			c.world.lanes = append(c.world.lanes, l)
		}
		n.lanes = append(n.lanes, l)
	}
	return n
}

// start starts a round. Its duration is determined here.
func (n *lane) start(r *overlap.Round) error {
	n.running = true
	at := n.world.now
	if !r.Planned {
		at += n.world.scenario.DecisionTime
	}
	n.on.Spans, n.on.Beside = n.on.Spans[:0], n.on.Beside[:0]
	for _, id := range r.Beside {
		n.on.Beside = append(n.on.Beside, models.ServiceID(n.world.bound[id]))
	}
	n.outcome.Round, n.outcome.Device, n.outcome.Spans = r.Number, r.Device, n.outcome.Spans[:0]
	for i, s := range r.Group.Spans {
		if n.down[s.Service] {
			return fmt.Errorf("%w: round %d runs service %d, whose worker is lost", ErrInvariant, r.Number, s.Service)
		}
		o := models.SpanOutcome{Span: s, Reached: s.End}
		if n.world.scenario.Faults.Failing > 0 && n.failing.Float64() < n.world.scenario.Faults.Failing {
			o.Status = models.SpanFailed
		}
		if s.End == n.world.services[s.Service].Operators && slices.ContainsFunc(r.Queries[i], func(id models.QueryID) bool { return n.world.bad[id] }) {
			o.Status = models.SpanFailed
		}
		n.outcome.Spans = append(n.outcome.Spans, o)
		s.Service = models.ServiceID(n.world.bound[s.Service])
		n.on.Spans = append(n.on.Spans, s)
	}
	took := max(scaled(n.device.Sample(n.on, n.noise), n.slow), 1)
	n.round.Number, n.round.Planned, n.round.Predicted = r.Number, r.Planned, r.Predicted
	n.round.Chosen, n.round.Start, n.round.Took = n.world.now, at, took
	n.round.End = at + n.world.scenario.RoundTime + took
	n.limit = n.limitOf(at+n.world.scenario.RoundTime, r.Predicted.Bound)
	n.world.ends.set(n.number, int64(min(n.round.End, n.limit)))
	n.round.Spans = append(n.round.Spans[:0], r.Group.Spans...)
	n.group.Spans, n.group.Beside = n.round.Spans, append(n.group.Beside[:0], r.Beside...)
	if n.world.scenario.Observer.Round != nil {
		// The scheduler reuses the memory of r.Queries, so copy them.
		n.queries, n.round.Queries = n.queries[:0], n.round.Queries[:0]
		for _, in := range r.Queries {
			from := len(n.queries)
			n.queries = append(n.queries, in...)
			n.round.Queries = append(n.round.Queries, n.queries[from:])
		}
	}
	n.world.tally.started(r)
	return nil
}

// finish ends the round. The predictor learns from it, and the scheduler receives the
// outcome.
func (n *lane) finish() error {
	if n.world.now < n.round.End {
		n.setApart()
	}
	n.running = false
	n.world.ends.set(n.number, int64(never))
	n.control.touched()
	n.outcome.Took = n.round.End - n.round.Start
	for i := range n.outcome.Spans {
		n.outcome.Spans[i].Took = n.round.Took
	}
	if n.whole() {
		_ = n.predictor.Observe(n.world.now, n.group, scaled(n.took(), 1/n.slow)) // the daemon, too, ignores observations that are out of range
	}
	n.busy += n.part(n.round.Took)
	n.world.tally.ended(n)
	if n.world.scenario.Observer.Round != nil {
		n.round.Device, n.round.Outcome = n.index, n.outcome
		n.world.scenario.Observer.Round(&n.round)
	}
	if err := n.control.step(overlap.Event{Kind: overlap.Finish, Outcome: n.outcome}); err != nil {
		return fmt.Errorf("%w: %w", ErrInvariant, err)
	}
	return nil
}

// part returns a time as that of the units that the round has, of all that the device has.
func (n *lane) part(took time.Duration) time.Duration {
	if share := n.round.Spans[0].Share; share > 0 {
		return took * time.Duration(share) / time.Duration(len(n.lanes))
	}
	return took
}

// whole reports whether all spans of the round ran to their ends.
func (n *lane) whole() bool {
	return !slices.ContainsFunc(n.outcome.Spans, func(o models.SpanOutcome) bool { return o.Status != models.SpanDone })
}

// took returns the time from which the predictor learns: the span's own time for a single
// span, and the time of the round for several.
func (n *lane) took() time.Duration {
	if len(n.round.Spans) == 1 {
		return n.round.Took
	}
	return n.outcome.Took
}

// stop stops a batch at the next operator. For a round of several spans that does not
// change the time of the round.
func (n *node) stop(batch models.BatchID) {
	for _, l := range n.lanes {
		l.stop(batch)
	}
}

func (n *lane) stop(batch models.BatchID) {
	for i, s := range n.round.Spans {
		o := &n.outcome.Spans[i]
		if s.Batch != batch || o.Status != models.SpanDone {
			continue
		}
		begun := min(max(float64(n.world.now-n.round.Start)/float64(n.round.Took), 0), 1)
		o.Status = models.SpanStopped
		o.Reached = min(s.Start+int(math.Ceil(begun*float64(s.Len()))), s.End)
		if len(n.round.Spans) == 1 {
			part := float64(o.Reached-s.Start) / float64(s.Len())
			n.cut(n.round.Start + n.world.scenario.RoundTime + time.Duration(part*float64(n.round.Took)))
		}
	}
}

// die removes the worker of a service, with its running span. If nothing is left of a
// round, the round ends.
func (n *node) die(service models.ServiceID) error {
	n.touch(service, true)
	if err := n.control.step(overlap.Event{Kind: overlap.Down, Service: service, Device: n.place}); err != nil {
		return err
	}
	for _, l := range n.lanes {
		l.lose(service)
	}
	if err := n.loseLate(service); err != nil {
		return err
	}
	return n.world.loseMoves(n, service)
}

// lose ends the span of a worker that is lost. If nothing is left of the round, it ends.
func (n *lane) lose(service models.ServiceID) {
	if !n.running {
		return
	}
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
		n.cut(n.world.now)
	}
}

// touch records that a worker was lost or is ready again.
func (n *node) touch(service models.ServiceID, down bool) {
	n.control.touched()
	n.down[service] = down
	if n.world.scenario.Observer.worker != nil {
		n.world.scenario.Observer.worker(n.index, service, n.world.now, !down)
	}
}

// cut makes the round end no later than the given time.
func (n *lane) cut(end time.Duration) {
	n.round.End = min(n.round.End, max(end, n.world.now))
	n.world.ends.set(n.number, int64(min(n.round.End, n.limit)))
	n.round.Took = min(n.round.Took, max(n.round.End-n.round.Start, 1))
}

// back makes the worker of a service ready again.
func (n *node) back(service models.ServiceID) error {
	n.touch(service, false)
	return n.control.step(overlap.Event{Kind: overlap.Up, Service: service, Device: n.place})
}

// The values of Scenario.Knows: what the scheduler knows about the latencies of groups.
// KnowsOrder and KnowsNothing reproduce the server of the Abacus authors (section 7.1),
// which knows nothing under its fcfs and edf, and only the order under its sjf. With them a
// query is dropped only after its deadline has passed and otherwise runs even if it ends
// late; nothing is overlapped or batched.
const (
	// KnowsAll gives the scheduler all predictions.
	KnowsAll = "all"

	// KnowsOrder gives it predictions when it orders queries, but not when it chooses a
	// group.
	KnowsOrder = "order"

	// KnowsNothing gives it no predictions.
	KnowsNothing = "nothing"
)

// knowledges lists the values of Scenario.Knows.
var knowledges = []string{KnowsAll, KnowsOrder, KnowsNothing}

// asking counts the predictor calls of a scheduler since its last round, and the groups in
// these calls. choosing is set while the scheduler chooses a group.
type asking struct {
	choosing bool
	calls    int
	groups   int
}

// informant is the predictor of a scheduler that may not know everything. The scheduler
// treats latencies that the informant withholds as unknown, and drops no query because of
// them. For a slow device the informant multiplies all latencies by slow.
type informant struct {
	*predictor.Predictor
	knows string
	slow  float64
	*asking
}

// scaled multiplies d by factor.
func scaled(d time.Duration, factor float64) time.Duration {
	if factor == 1 {
		return d
	}
	return time.Duration(float64(d) * factor)
}

// Predict implements [overlap.Predictor].
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

// soloTable returns the isolated latencies of the services on a device, as a device profile
// contains them: the median latency of every operator. It covers the sizes and sequence
// lengths that the device was measured with, and those of the service's queries.
func soloTable(sc *Scenario, d Device, bound []int) (*predictor.Solo, error) {
	known := d.Models()
	operators := make([]int, len(bound))
	for i, m := range bound {
		operators[i] = known[m].Operators
	}
	table, err := predictor.NewSolo()
	if err != nil {
		return nil, err
	}
	units := unitsOf(d, sc.Policy)
	table.Divide(units)
	for i, n := range operators {
		if err := table.Reset(models.ServiceID(i), n); err != nil {
			return nil, err
		}
	}
	for i, m := range bound {
		n := operators[i]
		sizes, seqLens := soloShapes(&sc.Services[i], &known[m])
		for _, seqLen := range seqLens {
			for _, size := range sizes {
				for share := 0; share < units; share = max(2*share, 1) {
					whole := models.Span{Service: models.ServiceID(m), End: n, Size: size, SeqLen: seqLen, Share: share}
					if err := table.On(share).SetOperators(models.ServiceID(i), size, seqLen, d.OperatorTimes(whole)); err != nil {
						return nil, err
					}
				}
			}
		}
	}
	return table, nil
}

// soloShapes returns the sizes and sequence lengths for soloTable, thinned to fit into a
// table.
func soloShapes(s *Service, m *device.ModelInfo) (sizes, seqLens []int) {
	sizes = sorted(m.Sizes, s.Sizes, []int{max(s.MaxBatch, 1)})
	seqLens = sorted(m.SeqLens, s.SeqLens)
	if len(seqLens) == 0 {
		seqLens = []int{0}
	}
	seqLens = stats.Thin(seqLens, predictor.MaxCells/2)
	return stats.Thin(sizes, max(predictor.MaxCells/len(seqLens), 1)), seqLens
}

// sorted returns the sorted elements of all lists without duplicates.
func sorted(lists ...[]int) []int {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

package metrics

import (
	"math"
	"time"
)

// record is what a scheduler goroutine did: its turns, the groups that it ran and
// the queries that it answered. It is plain memory of one goroutine; nothing
// allocates but what makes it larger.
type record struct {
	totals
	services []queries
	groups   groups

	woke    time.Duration // when this turn began
	group   sent          // the one that runs
	running bool
}

// totals are added up.
type totals struct {
	turns    uint64
	busy     time.Duration // all turns together
	exceeded uint64        // rounds that took longer than their bound

	solo, gained, lost time.Duration // by groups of several spans
}

// groups is what is noted of groups and of their predictions.
type groups struct {
	spans, headroom, margin, round    distribution
	soloRatio, groupRatio, groupError distribution // measured/predicted of one span and of several, and how far off that is
}

// queries is what is noted of the finished queries of a service.
type queries struct{ latency, target, queue distribution }

// sent is an operator group that is sent to the workers.
type sent struct {
	Spans     int
	Predicted time.Duration // 0 if that is not known
	Bound     time.Duration // what 99 of 100 keep, as far as is known
	Solo      time.Duration // its spans' time one after another, 0 if that is not known
	Headroom  time.Duration // until the first deadline in the group
	Urgent    bool          // whether there is a deadline
}

// outcome is how a group went.
type outcome struct {
	Took     time.Duration // from sending it until its last span had ended
	Compared time.Duration // what Predicted speaks of, which for one span is the time in the engine
	Whole    bool          // each of its spans ran to its end
}

// finished is a query that finished.
type finished struct {
	Latency time.Duration // from its arrival
	Queue   time.Duration // the part of it before the first span
	Target  time.Duration // the QoS target of its service
}

// newRecord returns an empty record of so many services.
func newRecord(services int) *record {
	r := &record{services: make([]queries, services), groups: groups{
		newDistribution(spanBounds), newDistribution(roomBounds), newDistribution(marginBounds), newDistribution(roundBounds),
		newDistribution(ratioBounds), newDistribution(ratioBounds), newDistribution(errorBounds),
	}}
	for i := range r.services {
		r.services[i] = newQueries()
	}
	return r
}

// wake begins a turn of the goroutine: it has something to do.
func (r *record) wake(now time.Duration) { r.woke = now }

// rest ends the turn.
func (r *record) rest(now time.Duration) {
	r.turns++
	r.busy += max(now-r.woke, 0)
}

// dispatch counts a group that is sent. It is followed by finish.
func (r *record) dispatch(g sent) {
	r.group, r.running = g, true
	r.groups.spans.observe(float64(g.Spans))
	if g.Urgent {
		r.groups.headroom.observe(max(g.Headroom, 0).Seconds())
	}
	if g.Predicted > 0 {
		r.groups.margin.observe(ratio(g.Bound, g.Predicted))
	}
}

// finish counts how the group went that was sent last. What did not run to its end
// is not compared with its prediction.
func (r *record) finish(o outcome) {
	if !r.running {
		return
	}
	r.running = false
	r.groups.round.observe(o.Took.Seconds())
	if g := &r.group; o.Whole && o.Compared > 0 {
		r.predicted(g, o.Compared)
		r.gain(g, o.Took)
	}
}

func (r *record) predicted(g *sent, took time.Duration) {
	if g.Predicted <= 0 {
		return
	}
	if took > g.Bound {
		r.exceeded++
	}
	if g.Spans == 1 {
		r.groups.soloRatio.observe(ratio(took, g.Predicted))
		return
	}
	r.groups.groupRatio.observe(ratio(took, g.Predicted))
	r.groups.groupError.observe(math.Abs(ratio(g.Predicted, took) - 1))
}

func (r *record) gain(g *sent, took time.Duration) {
	if g.Spans < 2 || g.Solo <= 0 {
		return
	}
	r.solo += g.Solo
	r.gained += max(g.Solo-took, 0)
	r.lost += max(took-g.Solo, 0)
}

// answer counts a query that finished. A service that the record was not made for
// is left out.
func (r *record) answer(service int, q finished) {
	if service < 0 || service >= len(r.services) {
		return
	}
	s := &r.services[service]
	s.latency.observe(q.Latency.Seconds())
	s.queue.observe(q.Queue.Seconds())
	if q.Target > 0 {
		s.target.observe(ratio(q.Latency, q.Target))
	}
}

// copyTo copies what was noted, for another goroutine, to another record, which
// comes to have as many services.
func (r *record) copyTo(to *record) {
	to.totals = r.totals
	from, at := r.groups.all(), to.groups.all()
	for i := range from {
		from[i].copyTo(at[i])
	}
	to.setServices(len(r.services))
	to.services = to.services[:len(r.services)]
	for i := range r.services {
		from, at := r.services[i].all(), to.services[i].all()
		for k := range from {
			from[k].copyTo(at[k])
		}
	}
}

func (g *groups) all() [7]*distribution {
	return [...]*distribution{&g.spans, &g.headroom, &g.margin, &g.round, &g.soloRatio, &g.groupRatio, &g.groupError}
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// setServices makes the record one of at least so many services. Those that are
// new have noted nothing.
func (r *record) setServices(n int) {
	for len(r.services) < n {
		r.services = append(r.services, newQueries())
	}
}

// fold adds what was noted of the queries of one service to those of another,
// which then goes on with them, and forgets it of the first. It may be done
// again, for what the first has answered since. A service that the record was
// not made for has noted nothing.
func (r *record) fold(from, to int) {
	if from == to || from < 0 || from >= len(r.services) || to < 0 {
		return
	}
	r.setServices(to + 1)
	source, sum := r.services[from].all(), r.services[to].all()
	for i := range source {
		sum[i].add(source[i])
	}
	r.clear(from)
}

// add adds what another record noted, and appends its services.
func (r *record) add(o *record) {
	r.turns += o.turns
	r.busy += o.busy
	r.exceeded += o.exceeded
	r.solo += o.solo
	r.gained += o.gained
	r.lost += o.lost
	to, from := r.groups.all(), o.groups.all()
	for i := range to {
		to[i].add(from[i])
	}
	r.services = append(r.services, o.services...)
}

// clear forgets what was noted of the queries of a service, for another one that
// is to have its place.
func (r *record) clear(service int) {
	if service < 0 || service >= len(r.services) {
		return
	}
	for _, h := range r.services[service].all() {
		clear(h.counts)
		h.sum = 0
	}
}

func newQueries() queries {
	return queries{newDistribution(latencyBounds), newDistribution(targetBounds), newDistribution(latencyBounds)}
}

func (q *queries) all() [3]*distribution { return [...]*distribution{&q.latency, &q.target, &q.queue} }

// distribution counts values in buckets. It is plain memory and belongs to one
// goroutine.
type distribution struct {
	bounds []float64 // upper, ascending; never changed
	counts []uint64  // each bucket alone; the last has what exceeds all bounds
	sum    float64
}

func newDistribution(bounds []float64) distribution {
	return distribution{bounds: bounds, counts: make([]uint64, len(bounds)+1)}
}

// observe counts a value. What is not a number says nothing and is left out.
func (h *distribution) observe(v float64) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return
	}
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

// copyTo copies the values to a histogram with the same bounds.
func (h *distribution) copyTo(to *distribution) {
	copy(to.counts, h.counts)
	to.sum = h.sum
}

// add adds a histogram with the same bounds.
func (h *distribution) add(o *distribution) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.sum += o.sum
}

// cumulative returns how many values there are in all, and for each bound how
// many do not exceed it, as Prometheus has them.
func (h *distribution) cumulative() (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, n := range h.counts {
		count += n
		if i < len(h.bounds) {
			buckets[h.bounds[i]] = count
		}
	}
	return count, buckets
}

// The bounds of all histograms. Those of ratios are dense around 1, where it is
// decided whether a promise is kept.
var (
	latencyBounds = []float64{.0005, .001, .002, .005, .01, .02, .035, .05, .075, .1, .15, .2, .3, .5, .75, 1, 2, 5, 10, 30}
	targetBounds  = []float64{.05, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95, 1, 1.05, 1.1, 1.25, 1.5, 2, 4}
	roundBounds   = []float64{.0001, .0002, .0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5}
	roomBounds    = []float64{0, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10}
	spanBounds    = []float64{1, 2, 3, 4, 6, 8, 12, 16, 32, 64}
	ratioBounds   = []float64{.5, .6, .7, .8, .85, .9, .95, .97, 1, 1.03, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4}
	errorBounds   = []float64{.01, .02, .03, .05, .075, .1, .15, .2, .3, .5, 1}
	marginBounds  = []float64{1, 1.02, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 4}
)

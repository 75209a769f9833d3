package metrics

import (
	"math"
	"time"
)

// Record is what a scheduler goroutine did: its turns, the groups that it ran and
// the queries that it answered. It is plain memory of one goroutine; nothing
// allocates but what makes it larger.
type Record struct {
	totals
	services []queries
	groups   groups

	woke    time.Duration // when this turn began
	group   sent          // that runs
	running bool
}

// totals are added up.
type totals struct {
	turns    uint64
	busy     time.Duration // that the turns took together
	exceeded uint64        // rounds that took longer than their bound

	solo, gained, lost time.Duration // of groups of several spans
}

// groups is what is noted of groups and of their predictions.
type groups struct {
	spans, headroom, margin, round    Histogram
	soloRatio, groupRatio, groupError Histogram // measured/predicted of one span and of several, and how far off that is
}

// queries is what is noted of the finished queries of a service.
type queries struct{ latency, target, queue Histogram }

// sent is an operator group that is sent to the workers.
type sent struct {
	Spans     int
	Predicted time.Duration // 0 if that is not known
	Bound     time.Duration // that 99 of 100 keep, as far as is known
	Solo      time.Duration // that its spans take one after another, 0 if that is not known
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
	Queue   time.Duration // of that before its first span
	Target  time.Duration // of its service
}

// NewRecord returns an empty record of so many services.
func NewRecord(services int) *Record {
	r := &Record{services: make([]queries, services), groups: groups{
		newHistogram(spanBounds), newHistogram(roomBounds), newHistogram(marginBounds), newHistogram(roundBounds),
		newHistogram(ratioBounds), newHistogram(ratioBounds), newHistogram(errorBounds),
	}}
	for i := range r.services {
		r.services[i] = newQueries()
	}
	return r
}

// wake notes that a turn of the goroutine begins: it has something to do.
func (r *Record) wake(now time.Duration) { r.woke = now }

// rest notes that the turn is over.
func (r *Record) rest(now time.Duration) {
	r.turns++
	r.busy += max(now-r.woke, 0)
}

// dispatch notes a group that is sent. It is followed by finish.
func (r *Record) dispatch(g sent) {
	r.group, r.running = g, true
	r.groups.spans.observe(float64(g.Spans))
	if g.Urgent {
		r.groups.headroom.observe(max(g.Headroom, 0).Seconds())
	}
	if g.Predicted > 0 {
		r.groups.margin.observe(ratio(g.Bound, g.Predicted))
	}
}

// finish notes how the group went that was sent last. What did not run to its
// end says nothing of predictions.
func (r *Record) finish(o outcome) {
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

func (r *Record) predicted(g *sent, took time.Duration) {
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

func (r *Record) gain(g *sent, took time.Duration) {
	if g.Spans < 2 || g.Solo <= 0 {
		return
	}
	r.solo += g.Solo
	r.gained += max(g.Solo-took, 0)
	r.lost += max(took-g.Solo, 0)
}

// answer notes a query that finished. A service that the record was not made for
// is left out.
func (r *Record) answer(service int, q finished) {
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
func (r *Record) copyTo(to *Record) {
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

func (g *groups) all() [7]*Histogram {
	return [...]*Histogram{&g.spans, &g.headroom, &g.margin, &g.round, &g.soloRatio, &g.groupRatio, &g.groupError}
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

package metrics

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Recorder is the listener that counts what a scheduler goroutine does: its turns,
// the groups that it runs and the queries that it answers. It is plain memory of
// that goroutine, which copies it when it publishes a status.
type Recorder struct {
	record
	series []*queries    // by service ID; only one that serves has answers
	woke   time.Duration // when this turn began
	latest atomic.Pointer[record]

	runs []running // by device
}

// running is the group that a device runs: how many spans it has, what was predicted of
// it, and its spans' time one after another, 0 if that is not known.
type running struct {
	spans     int
	predicted models.Estimate
	solo      time.Duration
	free      time.Duration // when the group before was over, 0 before the first
}

// record is what is counted.
type record struct {
	turns    uint64
	busy     time.Duration // all turns together
	exceeded uint64        // rounds that took longer than their bound

	soloTime, gained, lost time.Duration // by groups of several spans
	merged                 time.Duration // gained by batches of several queries

	groups   groups
	services []*queries
}

// groups is what is counted of groups and of their predictions: measured/predicted
// of one span and of several, and how far off that is.
type groups struct {
	size, headroom, margin, idle, round, move, soloRatio, groupRatio, groupError distribution
}

// queries is what is counted of the finished queries of a service. One that takes
// over a name goes on with what the one before has counted.
type queries struct {
	name                   string
	latency, target, queue distribution
}

// NewRecorder returns a Recorder of these services that has seen nothing.
func NewRecorder(services []string) *Recorder {
	r := &Recorder{record: newRecord()}
	for i, name := range services {
		r.set(&models.Service{ID: models.ServiceID(i), Name: name}, true)
	}
	return r
}

func newRecord() (r record) {
	g := &r.groups
	g.size.bounds, g.headroom.bounds, g.margin.bounds, g.idle.bounds, g.round.bounds, g.move.bounds = spanBounds, roomBounds, marginBounds, roundBounds, roundBounds, roundBounds
	g.soloRatio.bounds, g.groupRatio.bounds, g.groupError.bounds = ratioBounds, ratioBounds, errorBounds
	return r
}

// Observe implements [observe.Listener].
func (r *Recorder) Observe(e *observe.Event) {
	switch e.Kind {
	case observe.Woke:
		r.woke = e.At
	case observe.Rested:
		r.turns++
		r.busy += max(e.At-r.woke, 0)
	case observe.Dispatched:
		r.dispatched(e)
	case observe.Ended:
		r.merged += max(e.Gain.Merge, 0)
		r.ended(e.At, e.Measured)
	case observe.Answered:
		if e.Answer.Result == overlap.Finished {
			r.series[e.Answer.Service].answered(e.Answer, e.Target)
		}
	case observe.Moved:
		if e.Arrived {
			r.groups.move.observe(e.Took.Seconds())
		}
	case observe.Set:
		r.set(e.Service, e.Fresh)
	case observe.Dropped:
		if id := int(e.Service.ID); id < len(r.series) { // else it never served
			r.series[id] = nil
		}
		r.services = slices.DeleteFunc(r.services, func(q *queries) bool { return !slices.Contains(r.series, q) })
	case observe.Published:
		r.latest.Store(r.copied())
	}
}

// dispatched counts a group. Its headroom is that of the first deadline in the
// group, not of others that wait.
func (r *Recorder) dispatched(e *observe.Event) {
	if missing := e.Round.Device + 1 - len(r.runs); missing > 0 {
		r.runs = append(r.runs, make([]running, missing)...)
	}
	g := &r.runs[e.Round.Device]
	g.spans, g.predicted, g.solo = len(e.Round.Group.Spans), e.Round.Predicted, e.Apart.Spans
	r.groups.size.observe(float64(g.spans))
	if g.free > 0 {
		r.groups.idle.observe(max(e.Round.Start-g.free, 0).Seconds())
	}
	first := time.Duration(math.MaxInt64)
	for i := range e.Why.Candidates {
		if c := &e.Why.Candidates[i]; c.Place > 0 {
			first = min(first, c.Deadline)
		}
	}
	if first < math.MaxInt64 {
		r.groups.headroom.observe(max(first-e.Round.Start, 0).Seconds())
	}
	if p := g.predicted; p.Latency > 0 {
		r.groups.margin.observe(ratio(p.Bound, p.Latency))
	}
}

// ended counts how the group went that a device was sent last. What did not run to its end
// is not compared with its prediction, and what was not sent is not counted.
func (r *Recorder) ended(at time.Duration, m *executor.Outcome) {
	if m == nil {
		return
	}
	g := &r.runs[m.Device]
	g.free = at
	r.groups.round.observe(m.Took.Seconds())
	for i := range m.Spans {
		if m.Spans[i].Status != models.SpanDone {
			return
		}
	}
	took := m.Latency()
	if took <= 0 {
		return
	}
	r.compare(g, took)
	if g.spans > 1 && g.solo > 0 {
		r.soloTime += g.solo
		r.gained += max(g.solo-took, 0)
		r.lost += max(took-g.solo, 0)
	}
}

// compare counts how far off the prediction was. Of one span it speaks of the time
// in the engine.
func (r *Recorder) compare(g *running, took time.Duration) {
	p := g.predicted
	if p.Latency <= 0 {
		return
	}
	if took > p.Bound {
		r.exceeded++
	}
	if g.spans == 1 {
		r.groups.soloRatio.observe(ratio(took, p.Latency))
		return
	}
	r.groups.groupRatio.observe(ratio(took, p.Latency))
	r.groups.groupError.observe(math.Abs(ratio(p.Latency, took) - 1))
}

func (q *queries) answered(a *overlap.Answer, target time.Duration) {
	latency := a.At - a.Started + a.Queue
	q.latency.observe(latency.Seconds())
	q.queue.observe(a.Queue.Seconds())
	if target > 0 {
		q.target.observe(ratio(latency, target))
	}
}

// set counts a service under its name.
func (r *Recorder) set(s *models.Service, fresh bool) {
	at := slices.IndexFunc(r.services, func(q *queries) bool { return q.name == s.Name })
	if at < 0 {
		at, r.services, fresh = len(r.services), append(r.services, nil), true
	}
	if fresh {
		q := &queries{name: s.Name}
		q.latency.bounds, q.target.bounds, q.queue.bounds = latencyBounds, targetBounds, latencyBounds
		r.services[at] = q
	}
	if missing := int(s.ID) + 1 - len(r.series); missing > 0 {
		r.series = append(r.series, make([]*queries, missing)...)
	}
	r.series[s.ID] = r.services[at]
}

// copied returns a copy for another goroutine.
func (r *record) copied() *record {
	c, all := *r, make([]queries, len(r.services))
	c.services = make([]*queries, len(all))
	for i, q := range r.services {
		all[i] = *q
		c.services[i] = &all[i]
	}
	return &c
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// maxBounds is how many bounds a histogram has at most.
const maxBounds = 20

// distribution counts values in buckets. It is a value: a copy goes its own way.
type distribution struct {
	bounds []float64             // upper, ascending; never changed
	counts [maxBounds + 1]uint64 // each bucket alone; the one after the last bound has what exceeds all
	sum    float64
}

func (h *distribution) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

// cumulative returns how many values there are in all, and for each bound how
// many do not exceed it, as Prometheus has them.
func (h *distribution) cumulative() (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += h.counts[i]
		buckets[bound] = count
	}
	return count + h.counts[len(h.bounds)], buckets
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

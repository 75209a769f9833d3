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

// Recorder is the listener that counts turns of the scheduler goroutine, groups and
// queries. It is owned by that goroutine, without locks; when a status is published it
// stores a copy for the exporter.
type Recorder struct {
	record

	// series is indexed by service ID. An entry is nil if the service is not there.
	series []*queries

	// woke is when the current turn began.
	woke time.Duration

	// latest is the published copy.
	latest atomic.Pointer[record]

	// runs is indexed by device, then by slot.
	runs [][]running
}

// running describes a group that a device runs. solo is the time of its spans one after
// another, 0 if it is not known.
type running struct {
	round     uint64
	spans     int
	predicted models.Estimate
	solo      time.Duration

	// free is when the previous group ended, 0 before the first.
	free time.Duration
}

// record holds the counts.
type record struct {
	turns uint64

	// busy is the total time of all turns.
	busy time.Duration

	// exceeded counts rounds that took longer than their bound.
	exceeded uint64

	// soloTime, gained and lost are sums over groups of several spans: their isolated
	// latencies, and the time saved or lost compared with these.
	soloTime, gained, lost time.Duration

	// merged is the time saved by batches of several queries.
	merged time.Duration

	groups   groups
	services []*queries
}

// groups holds distributions over groups. The ratios are measured/predicted, for one span
// and for several.
type groups struct {
	size, headroom, margin, idle, round, move, soloRatio, groupRatio, groupError distribution
}

// queries holds distributions over the finished queries of a service. A service that takes
// over a name continues its counts.
type queries struct {
	name                   string
	latency, target, queue distribution
}

// NewRecorder returns an empty Recorder for these services.
func NewRecorder(services []string) *Recorder {
	r := &Recorder{record: newRecord()}
	for i, name := range services {
		r.set(&models.Service{ID: models.ServiceID(i), Name: name}, true)
	}
	return r
}

// newRecord returns an empty record with the bounds of its histograms.
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
		// A counter must not fall, so losses are not subtracted.
		r.merged += max(e.Gain.Merge, 0)
		r.ended(e.At, e.Measured)
	case observe.Answered:
		// Only finished queries have a latency that means something.
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
		if id := int(e.Service.ID); id < len(r.series) { // otherwise it never served
			r.series[id] = nil
		}
		// A name stays as long as any service counts under it, as during a replacement.
		r.services = slices.DeleteFunc(r.services, func(q *queries) bool { return !slices.Contains(r.series, q) })
	case observe.Published:
		r.latest.Store(r.copied())
	}
}

// dispatched counts a group. The headroom is the time until the first deadline within the
// group; other queued work does not matter.
func (r *Recorder) dispatched(e *observe.Event) {
	if missing := e.Round.Device + 1 - len(r.runs); missing > 0 {
		r.runs = append(r.runs, make([][]running, missing)...)
	}
	on := &r.runs[e.Round.Device]
	if missing := e.Round.Slot + 1 - len(*on); missing > 0 {
		*on = append(*on, make([]running, missing)...)
	}
	g := &(*on)[e.Round.Slot]
	g.round = e.Round.Number
	g.spans, g.predicted, g.solo = len(e.Round.Group.Spans), e.Round.Predicted, e.Apart.Spans
	r.groups.size.observe(float64(g.spans))
	if g.free > 0 {
		r.groups.idle.observe(max(e.Round.Start-g.free, 0).Seconds())
	}
	// Candidates with a place are the members of the group.
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

// ended counts the outcome of the group that a device ran. A group that did not complete is
// not compared with its prediction, and one that was not sent is not counted.
func (r *Recorder) ended(at time.Duration, m *executor.Outcome) {
	// The round could not be sent.
	if m == nil {
		return
	}
	on := r.runs[m.Device]
	slot := slices.IndexFunc(on, func(g running) bool { return g.round == m.Round })
	if slot < 0 {
		return
	}
	g := &on[slot]
	g.free = at
	r.groups.round.observe(m.Took.Seconds())
	// The time of an incomplete group says nothing about its prediction.
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

// compare counts the prediction error. For a single span, the measured time is that in the
// engine.
func (r *Recorder) compare(g *running, took time.Duration) {
	p := g.predicted
	if p.Latency <= 0 {
		return
	}
	if took > p.Bound {
		r.exceeded++
	}
	// A single span has its isolated latency, which the network does not predict.
	if g.spans == 1 {
		r.groups.soloRatio.observe(ratio(took, p.Latency))
		return
	}
	r.groups.groupRatio.observe(ratio(took, p.Latency))
	r.groups.groupError.observe(math.Abs(ratio(p.Latency, took) - 1))
}

// answered counts a finished query.
func (q *queries) answered(a *overlap.Answer, target time.Duration) {
	// Queue ends when the first span starts, so this is the time from arrival to answer.
	latency := a.At - a.Started + a.Queue
	q.latency.observe(latency.Seconds())
	q.queue.observe(a.Queue.Seconds())
	if target > 0 {
		q.target.observe(ratio(latency, target))
	}
}

// set makes the counts of a service those under its name.
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
	// IDs grow with each reload, so the index may be beyond the list.
	if missing := int(s.ID) + 1 - len(r.series); missing > 0 {
		r.series = append(r.series, make([]*queries, missing)...)
	}
	r.series[s.ID] = r.services[at]
}

// copied returns a deep copy for the exporter. Bounds are shared, because they never
// change.
func (r *record) copied() *record {
	c, all := *r, make([]queries, len(r.services))
	c.services = make([]*queries, len(all))
	for i, q := range r.services {
		all[i] = *q
		c.services[i] = &all[i]
	}
	return &c
}

// ratio returns a/b.
func ratio(a, b time.Duration) float64 { return float64(a) / float64(b) }

// maxBounds is the maximum number of bounds of a histogram.
const maxBounds = 20

// distribution counts values in buckets. It has an array instead of a slice, so that an
// assignment copies it.
type distribution struct {
	// bounds are upper bounds, ascending. They never change.
	bounds []float64

	// counts are not cumulative. The bucket after the last bound counts the larger values.
	counts [maxBounds + 1]uint64
	sum    float64
}

// observe counts a value.
func (h *distribution) observe(v float64) {
	i := 0
	for i < len(h.bounds) && v > h.bounds[i] {
		i++
	}
	h.counts[i]++
	h.sum += v
}

// cumulative returns the number of all values, and for each bound the number of values up
// to it, which is Prometheus's form.
func (h *distribution) cumulative() (count uint64, buckets map[float64]uint64) {
	buckets = make(map[float64]uint64, len(h.bounds))
	for i, bound := range h.bounds {
		count += h.counts[i]
		buckets[bound] = count
	}
	return count + h.counts[len(h.bounds)], buckets
}

// Bounds of the histograms. Those of ratios are dense around 1, where a promise is kept or
// broken.
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

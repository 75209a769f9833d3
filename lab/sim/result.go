package sim

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/overlap"
)

// Result is the outcome of a run. Fractions are between 0 and 1. A value that is not
// defined, such as the mean of no queries, is 0.
type Result struct {
	Policy  string `json:"policy"`
	Seed    uint64 `json:"seed"`
	Devices int    `json:"devices"`

	totals

	// Seconds is the virtual time from 0 to the last answer or arrival.
	Seconds float64 `json:"seconds"`

	// Offered is the sum of the queries' isolated latencies over the time in which they
	// arrive, per device.
	Offered float64 `json:"offered_load"`

	Services []serviceResult `json:"services"`
	Rounds   int             `json:"rounds"`

	// Groups counts the rounds with one span, with two, and so on.
	Groups []int `json:"groups"`

	// Batches is the number of batches that started. Merged is the number of queries that
	// started in a batch with others.
	Batches int `json:"batches"`
	Merged  int `json:"merged"`

	// Plans counts the rounds that were chosen ahead of time.
	Plans struct {
		Made       uint64 `json:"made"`
		Kept       uint64 `json:"kept"`
		Overturned uint64 `json:"overturned"`
	} `json:"plans"`

	// Prediction describes the errors of the scheduler's predictor: the mean absolute
	// percentage error of all rounds and of rounds with several spans, and the fraction of
	// the rounds that took longer than their bound.
	Prediction struct {
		MAPE       float64 `json:"mape"`
		GroupsMAPE float64 `json:"groups_mape"`
		Exceeded   float64 `json:"exceeded"`
	} `json:"prediction"`

	// Busy is the mean fraction of the time that a device worked. Kinds breaks it down by
	// kind, in the order of the first device of each; it is set only if the scenario has
	// Kinds.
	Busy  float64    `json:"busy"`
	Kinds []kindUse  `json:"kinds,omitempty"`
	Moves *moveTally `json:"moves,omitempty"`

	// Pods is nil if the scenario does not let pods come or go.
	Pods *podTally `json:"pods,omitempty"`
}

// kindUse is the utilization of the devices of a kind.
type kindUse struct {
	Devices int     `json:"devices"`
	Busy    float64 `json:"busy"`
}

// serviceResult is the result of one service.
type serviceResult struct {
	Name string `json:"name"`
	totals
}

// totals are counted for all queries and for those of each service. Late queries are also
// answered. Rejected queries count as dropped.
type totals struct {
	Queries    int     `json:"queries"`
	Violations float64 `json:"violations"`

	// P99OverTarget is the 99th percentile of latency over target, for answered queries.
	P99OverTarget float64 `json:"p99_over_target"`

	ThroughputQPS float64 `json:"throughput_qps"`
	GoodputQPS    float64 `json:"goodput_qps"`
	Answered      int     `json:"answered"`
	Late          int     `json:"late"`
	Dropped       int     `json:"dropped"`
	Failed        int     `json:"failed"`
	Cancelled     int     `json:"cancelled"`
	LatencyMS     latency `json:"latency_ms"`
}

// latency summarizes the latencies of answered queries in milliseconds.
type latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// tally holds the counts of a run in progress.
type tally struct {
	services []serviceTally
	offered  float64

	// last is the time of the last answer.
	last time.Duration

	groups   []int
	errors   mean
	several  mean
	exceeded mean
}

// serviceTally counts the queries of a service and keeps the latencies of the answered
// ones. millis is their mean, computed in the order of the answers.
type serviceTally struct {
	totals
	violations int
	latencies  []time.Duration
	millis     mean
}

// mean computes the mean of numbers that are added one by one.
type mean struct {
	sum float64
	n   int
}

// add adds a number.
func (m *mean) add(x float64) { m.sum += x; m.n++ }

// value returns the mean, or 0 if there are no numbers.
func (m *mean) value() float64 { return ratio(m.sum, float64(m.n)) }

// started counts a round by its number of spans.
func (t *tally) started(r *overlap.Round) {
	for len(t.groups) < len(r.Group.Spans) {
		t.groups = append(t.groups, 0)
	}
	t.groups[len(r.Group.Spans)-1]++
}

// ended compares the time of a round with its prediction. It skips rounds without a
// prediction, and those in which a span did not run to its end.
func (t *tally) ended(n *lane) {
	if !n.whole() || n.round.Predicted.Latency == 0 {
		return
	}
	took, said := n.took(), n.round.Predicted
	off := math.Abs(float64(said.Latency)/float64(took) - 1)
	t.errors.add(off)
	if len(n.round.Spans) > 1 {
		t.several.add(off)
	}
	late := 0.0
	if took > said.Bound {
		late = 1
	}
	t.exceeded.add(late)
}

// answered counts how a query ended.
func (t *tally) answered(a *Answer) {
	s := &t.services[a.Query.Service]
	s.Queries++
	t.last = max(t.last, a.Ended.At)
	switch a.Ended.Result {
	case overlap.Finished:
		s.Answered++
		s.took(a.Ended.At - a.Query.At)
		if !a.InTime {
			s.Late++
		}
	case overlap.Dropped:
		s.Dropped++
	case overlap.Failed:
		s.Failed++
	case overlap.Cancelled:
		s.Cancelled++
	}
	if !a.InTime && (a.Ended.Result != overlap.Cancelled || a.Query.Leaves >= a.Due) {
		s.violations++
	}
}

// result computes the result of a finished run.
func (w *world) result() *Result {
	t := &w.tally
	r := &Result{Policy: w.scenario.Policy, Seed: w.scenario.Seed, Devices: len(w.nodes), Groups: t.groups, Offered: t.offered}
	r.Prediction.MAPE, r.Prediction.GroupsMAPE = 100*t.errors.value(), 100*t.several.value()
	r.Prediction.Exceeded = t.exceeded.value()
	r.Seconds = max(t.last, w.submitted[len(w.submitted)-1].At).Seconds()
	r.Busy, r.Kinds = w.use(r.Seconds)
	r.Moves = w.moves.sum()
	if w.scenario.Pods != (pods{}) {
		count := w.cluster.count // a copy, so that the result does not keep the run in memory
		r.Pods = &count
	}
	for _, n := range t.groups {
		r.Rounds += n
	}
	var all serviceTally
	var overTarget []float64
	for i := range t.services {
		s, sv := &t.services[i], &w.scenario.Services[i]
		all.add(s)
		one := s.sum(r.Seconds)
		one.P99OverTarget = float64(stats.Quantile(s.latencies, 0.99)) / float64(sv.Target)
		for _, l := range s.latencies {
			overTarget = append(overTarget, float64(l)/float64(sv.Target))
		}
		r.Services = append(r.Services, serviceResult{sv.Name, one})
	}
	r.totals = all.sum(r.Seconds)
	slices.Sort(overTarget)
	r.P99OverTarget = stats.Quantile(overTarget, 0.99)
	for _, c := range slices.Concat(w.replaced, w.controls) {
		m := c.scheduler.Metrics()
		r.Plans.Made += m.Plans.Made
		r.Plans.Kept += m.Plans.Kept
		r.Plans.Overturned += m.Plans.Overturned
		for i := range m.Services {
			r.Batches += int(m.Services[i].Batches)
			r.Merged += int(m.Services[i].Merged)
		}
	}
	return r
}

// use returns the fraction of the given time that the devices worked, for all devices and
// for each kind.
func (w *world) use(seconds float64) (all float64, kinds []kindUse) {
	var sum time.Duration
	var of []int
	for _, n := range w.nodes {
		sum += n.busy
		at := slices.Index(of, n.kind)
		if at < 0 {
			at, of, kinds = len(of), append(of, n.kind), append(kinds, kindUse{})
		}
		kinds[at].Devices++
		kinds[at].Busy += n.busy.Seconds()
	}
	for i := range kinds {
		kinds[i].Busy = ratio(kinds[i].Busy, seconds*float64(kinds[i].Devices))
	}
	if len(w.scenario.Kinds) == 0 {
		kinds = nil
	}
	return ratio(sum.Seconds(), seconds*float64(len(w.nodes))), kinds
}

// add adds the counts of o.
func (s *serviceTally) add(o *serviceTally) {
	s.Queries += o.Queries
	s.Answered += o.Answered
	s.Late += o.Late
	s.Dropped += o.Dropped
	s.Failed += o.Failed
	s.Cancelled += o.Cancelled
	s.violations += o.violations
	for _, l := range o.latencies {
		s.took(l)
	}
}

// took records the latency of an answered query.
func (s *serviceTally) took(l time.Duration) {
	s.latencies = append(s.latencies, l)
	s.millis.add(millis(l))
}

// millis returns d in milliseconds.
func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// sum returns the totals of a run of the given duration. It sorts the latencies.
func (s *serviceTally) sum(seconds float64) totals {
	slices.Sort(s.latencies)
	t := s.totals
	t.Violations = ratio(float64(s.violations), float64(t.Queries))
	t.ThroughputQPS, t.GoodputQPS = ratio(float64(t.Answered), seconds), ratio(float64(t.Answered-t.Late), seconds)
	at := func(q float64) float64 { return millis(stats.Quantile(s.latencies, q)) }
	t.LatencyMS = latency{Mean: s.millis.value(), P50: at(0.5), P99: at(0.99), Max: at(1)}
	return t
}

// ratio returns a/b, or 0 if b is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

package sim

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/stats"
)

// Result is what came out of a run. Shares are of 1, and what cannot be computed
// since there was none of it is 0.
type Result struct {
	Policy  string `json:"policy"`
	Seed    uint64 `json:"seed"`
	Devices int    `json:"devices"`

	Queries       int     `json:"queries"` // submitted
	Violations    float64 `json:"violations"`
	P99OverTarget float64 `json:"p99_over_target"` // of latency over target, of the answered ones
	ThroughputQPS float64 `json:"throughput_qps"`
	GoodputQPS    float64 `json:"goodput_qps"`

	Answered  int     `json:"answered"` // late ones too
	Late      int     `json:"late"`
	Dropped   int     `json:"dropped"` // refused ones too
	Failed    int     `json:"failed"`
	Cancelled int     `json:"cancelled"`
	LatencyMS Latency `json:"latency_ms"`
	Seconds   float64 `json:"seconds"`      // of virtual time
	Offered   float64 `json:"offered_load"` // that the queries would take one after another, over the time in which they came, per device

	Services   []ServiceResult  `json:"services"`
	Rounds     int              `json:"rounds"`
	Groups     []int            `json:"groups"`  // rounds with one span, two, and so on
	Batches    int              `json:"batches"` // that were started
	Merged     int              `json:"merged"`  // queries that started in a batch with others
	Plans      Plans            `json:"plans"`
	Prediction PredictionResult `json:"prediction"`
	Busy       float64          `json:"busy"` // share of the time that a device worked
}

// Latency is of the answered queries, in milliseconds.
type Latency struct {
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
	Max  float64 `json:"max"`
}

// Plans counts the rounds that were chosen ahead.
type Plans struct {
	Made       uint64 `json:"made"`
	Kept       uint64 `json:"kept"`
	Overturned uint64 `json:"overturned"`
}

// PredictionResult is how far the scheduler's predictor was off, in percent of
// what was measured.
type PredictionResult struct {
	MAPE       float64 `json:"mape"`        // of all rounds
	GroupsMAPE float64 `json:"groups_mape"` // of those with several spans
	Exceeded   float64 `json:"exceeded"`    // share of the rounds that took longer than their bound
}

// ServiceResult is what came out for one service.
type ServiceResult struct {
	Name          string  `json:"name"`
	Queries       int     `json:"queries"`
	Violations    float64 `json:"violations"`
	P99OverTarget float64 `json:"p99_over_target"`
	ThroughputQPS float64 `json:"throughput_qps"`
	GoodputQPS    float64 `json:"goodput_qps"`
	Answered      int     `json:"answered"`
	Late          int     `json:"late"`
	Dropped       int     `json:"dropped"`
	Failed        int     `json:"failed"`
	Cancelled     int     `json:"cancelled"`
	LatencyMS     Latency `json:"latency_ms"`
}

// tally counts while a run goes on.
type tally struct {
	services []serviceTally
	offered  float64
	last     time.Duration // answer
	groups   []int
	busy     time.Duration
	errors   mean
	several  mean
	exceeded mean
}

type serviceTally struct {
	queries, answered, late, dropped, failed, cancelled, violations int

	latencies []time.Duration
}

// mean is that of numbers seen one by one.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(x float64) { m.sum += x; m.n++ }

func (m *mean) value() float64 { return ratio(m.sum, float64(m.n)) }

func (t *tally) begin(w *world) { t.services = make([]serviceTally, len(w.scenario.Services)) }

func (t *tally) started(r *overlap.Round) {
	for len(t.groups) < len(r.Group.Spans) {
		t.groups = append(t.groups, 0)
	}
	t.groups[len(r.Group.Spans)-1]++
}

func (t *tally) ended(n *node) {
	t.busy += n.round.Took
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

func (t *tally) answered(a *Answer) {
	s := &t.services[a.Query.Service]
	s.queries++
	t.last = max(t.last, a.Ended.At)
	switch a.Ended.Result {
	case overlap.Finished:
		s.answered++
		s.latencies = append(s.latencies, a.Ended.At-a.Query.At)
		if !a.InTime {
			s.late++
		}
	case overlap.Dropped:
		s.dropped++
	case overlap.Failed:
		s.failed++
	case overlap.Cancelled:
		s.cancelled++
	}
	if !a.InTime && (a.Ended.Result != overlap.Cancelled || a.Query.Leaves >= a.Due) {
		s.violations++
	}
}

// result adds up.
func (w *world) result() *Result {
	t := &w.tally
	r := &Result{
		Policy: w.scenario.Policy, Seed: w.scenario.Seed, Devices: len(w.nodes), Queries: len(w.submitted),
		Groups: t.groups, Offered: t.offered,
		Prediction: PredictionResult{MAPE: 100 * t.errors.value(), GroupsMAPE: 100 * t.several.value(), Exceeded: t.exceeded.value()},
	}
	r.Seconds = max(t.last, w.submitted[len(w.submitted)-1].At).Seconds()
	r.Busy = ratio(t.busy.Seconds(), r.Seconds*float64(len(w.nodes)))
	for _, n := range t.groups {
		r.Rounds += n
	}
	w.addServices(r)
	for _, n := range w.nodes {
		m := n.scheduler.Metrics()
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

func (w *world) addServices(r *Result) {
	var all []time.Duration
	var relative []float64
	violations := 0
	for i := range w.tally.services {
		s, sv := &w.tally.services[i], &w.scenario.Services[i]
		over := make([]float64, len(s.latencies))
		for k, l := range s.latencies {
			over[k] = float64(l) / float64(sv.Target)
		}
		relative, all = append(relative, over...), append(all, s.latencies...)
		slices.Sort(over)
		r.Services = append(r.Services, ServiceResult{
			Name: sv.Name, Queries: s.queries, Answered: s.answered, Late: s.late, Dropped: s.dropped,
			Failed: s.failed, Cancelled: s.cancelled,
			Violations:    ratio(float64(s.violations), float64(s.queries)),
			P99OverTarget: stats.Quantile(over, 0.99),
			ThroughputQPS: ratio(float64(s.answered), r.Seconds),
			GoodputQPS:    ratio(float64(s.answered-s.late), r.Seconds),
			LatencyMS:     latencyOf(s.latencies),
		})
		violations += s.violations
		r.Answered += s.answered
		r.Late += s.late
		r.Dropped += s.dropped
		r.Failed += s.failed
		r.Cancelled += s.cancelled
	}
	r.Violations = ratio(float64(violations), float64(r.Queries))
	slices.Sort(relative)
	r.P99OverTarget = stats.Quantile(relative, 0.99)
	r.ThroughputQPS = ratio(float64(r.Answered), r.Seconds)
	r.GoodputQPS = ratio(float64(r.Answered-r.Late), r.Seconds)
	r.LatencyMS = latencyOf(all)
}

// latencyOf sums up latencies, in milliseconds.
func latencyOf(list []time.Duration) (l Latency) {
	if len(list) == 0 {
		return l
	}
	millis := make([]float64, len(list))
	for i, d := range list {
		millis[i] = float64(d) / float64(time.Millisecond)
	}
	l.Mean = stats.Mean(millis)
	slices.Sort(millis)
	l.P50, l.P99, l.Max = stats.Quantile(millis, 0.5), stats.Quantile(millis, 0.99), millis[len(millis)-1]
	return l
}

// ratio is 0 where there is nothing to compare with.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

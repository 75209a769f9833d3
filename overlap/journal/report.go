package journal

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Report is what a replay found.
type Report struct {
	Version     string            `json:"recorded_version"`
	Commit      string            `json:"recorded_commit"`
	Device      string            `json:"device"`
	Created     time.Time         `json:"created"`
	Policy      string            `json:"policy"`
	Services    []string          `json:"services"` // by ID; where several had the same, the last
	Reproduced  bool              `json:"reproduced"`
	Events      uint64            `json:"events"`
	Rounds      uint64            `json:"rounds"`
	FirstRound  uint64            `json:"first_round"`
	LastRound   uint64            `json:"last_round"`
	Seconds     float64           `json:"seconds"` // from the first event to the last
	Checkpoints uint64            `json:"checkpoints"`
	Gaps        uint64            `json:"gaps"`
	Lost        uint64            `json:"lost_events"`
	Torn        bool              `json:"torn"` // the last line had no end and was left out
	Arrived     uint64            `json:"arrived"`
	Finished    uint64            `json:"finished"`
	Dropped     map[string]uint64 `json:"dropped"`
	Failed      map[string]uint64 `json:"failed"`
	Cancelled   uint64            `json:"cancelled"`
	Decision    decisionTimes     `json:"decision_us"`
	Errors      []spanErrors      `json:"measured_over_predicted"`
	Difference  *difference       `json:"difference,omitempty"`

	first, last time.Duration
	decisions   []float64
	bySpans     map[int]*spanErrors
}

// decisionTimes is how long choosing the rounds again has taken, in
// microseconds.
type decisionTimes struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

// spanErrors is how far predictions were off, for groups of so many spans.
type spanErrors struct {
	Spans  int     `json:"spans"`
	Rounds uint64  `json:"rounds"`
	None   uint64  `json:"unpredicted"` // without prediction, or not run to their end
	MAPE   float64 `json:"mape"`        // percent
	P01    float64 `json:"p01"`
	P50    float64 `json:"p50"`
	P90    float64 `json:"p90"`
	P99    float64 `json:"p99"`

	OverBound float64 `json:"over_bound"` // percent of the predicted rounds that took longer than the bound

	ratios []float64
	over   int // rounds
}

func newReport(h *head) *Report {
	return &Report{
		Version: h.Version, Commit: h.Commit, Device: h.Device, Created: h.Created, Policy: h.Config.Policy,
		Dropped: map[string]uint64{}, Failed: map[string]uint64{}, Errors: []spanErrors{}, bySpans: map[int]*spanErrors{},
	}
}

// service takes in the name of a service in the log. One that was
// removed keeps its name until another one has its ID.
func (r *Report) service(m models.Service) {
	for int(m.ID) >= len(r.Services) {
		r.Services = append(r.Services, "")
	}
	if m.Name != "" {
		r.Services[m.ID] = m.Name
	}
}

// event takes in the time of an event.
func (r *Report) event(at time.Duration) {
	if r.Events++; r.Events == 1 {
		r.first, r.last = at, at
	}
	r.last = max(r.last, at)
}

func (r *Report) answer(a *overlap.Answer) {
	switch a.Result {
	case overlap.Finished:
		r.Finished++
	case overlap.Dropped:
		r.Dropped[a.Reason.String()]++
	case overlap.Failed:
		r.Failed[a.Reason.String()]++
	case overlap.Cancelled:
		r.Cancelled++
	}
}

func (r *Report) round(round *Round) {
	if r.Rounds == 0 {
		r.FirstRound = round.Number
	}
	r.Rounds++
	r.LastRound = round.Number
	r.decisions = append(r.decisions, float64(round.Decision)/float64(time.Microsecond))
	n := len(round.Group.Spans)
	e := r.bySpans[n]
	if e == nil {
		e = &spanErrors{Spans: n}
		r.bySpans[n] = e
	}
	e.Rounds++
	ratio, ok := round.Ratio()
	if !ok {
		e.None++
		return
	}
	e.ratios = append(e.ratios, ratio)
	if round.Latency() > round.Predicted.Bound {
		e.over++
	}
}

// finish computes what holds for all rounds together.
func (r *Report) finish() {
	r.Reproduced = r.Difference == nil
	r.Seconds = (r.last - r.first).Seconds()
	slices.Sort(r.decisions)
	r.Decision = decisionTimes{stats.Quantile(r.decisions, 0.5), stats.Quantile(r.decisions, 0.99), stats.Quantile(r.decisions, 1)}
	for _, n := range slices.Sorted(maps.Keys(r.bySpans)) {
		e := r.bySpans[n]
		e.finish()
		r.Errors = append(r.Errors, *e)
	}
}

func (e *spanErrors) finish() {
	slices.Sort(e.ratios)
	e.P01, e.P50 = stats.Quantile(e.ratios, 0.01), stats.Quantile(e.ratios, 0.5)
	e.P90, e.P99 = stats.Quantile(e.ratios, 0.9), stats.Quantile(e.ratios, 0.99)
	n := float64(max(len(e.ratios), 1))
	e.OverBound = 100 * float64(e.over) / n
	for _, ratio := range e.ratios {
		e.MAPE += 100 * math.Abs(1-1/ratio) / n
	}
}

// Round is one round of a log.
type Round struct {
	overlap.Round
	Why overlap.Explanation

	// Line is the number of its line in the log. At is when it was chosen, and Calls are what the
	// predictor was asked for it. Decision is the time that choosing it again has taken.
	Line     int
	At       time.Duration
	Calls    [][]question
	Decision time.Duration

	// Dropped are the queries that ended when it was chosen, Answers those when it was over.
	Dropped  []overlap.Answer
	Outcome  models.Outcome
	Finished time.Duration
	Answers  []overlap.Answer
}

// Latency returns how long the group took, as predictions are of: on an emulated device
// without what the host was late. A log that does not say so has the time of the round.
func (r *Round) Latency() time.Duration { return cmp.Or(r.Outcome.Latency, r.Outcome.Took) }

// Ratio returns measured/predicted, and false if there is none: then nothing was
// predicted, or not every span ran to its end.
func (r *Round) Ratio() (float64, bool) {
	broken := slices.ContainsFunc(r.Outcome.Spans, func(s models.SpanOutcome) bool { return s.Status != models.SpanDone })
	if r.Predicted.Latency <= 0 || r.Latency() <= 0 || broken || len(r.Outcome.Spans) != len(r.Group.Spans) {
		return 0, false
	}
	return float64(r.Latency()) / float64(r.Predicted.Latency), true
}

package journal

import (
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/stats"
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

	started   bool
	first     time.Duration
	last      time.Duration
	decisions []float64
	ratios    map[int][]float64 // by number of spans
	over      map[int]uint64
	unknown   map[int]uint64
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
}

func newReport(h *head) *Report {
	r := &Report{
		Version: h.Version, Commit: h.Commit, Device: h.Device, Created: h.Created, Policy: h.Config.Policy,
		Dropped: map[string]uint64{}, Failed: map[string]uint64{},
		Errors: []spanErrors{}, ratios: map[int][]float64{}, unknown: map[int]uint64{}, over: map[int]uint64{},
	}
	for i := range h.Config.Services {
		r.Services = append(r.Services, h.Config.Services[i].Name)
	}
	return r
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

// span takes in the time of an event.
func (r *Report) span(at time.Duration) {
	if !r.started {
		r.started, r.first = true, at
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
	if ratio, ok := round.Ratio(); ok {
		r.ratios[n] = append(r.ratios[n], ratio)
		if round.Outcome.Took > round.Predicted.Bound {
			r.over[n]++
		}
	} else {
		r.unknown[n]++
	}
}

// finish computes what holds for all rounds together.
func (r *Report) finish() {
	r.Reproduced = r.Difference == nil
	if r.started {
		r.Seconds = (r.last - r.first).Seconds()
	}
	slices.Sort(r.decisions)
	r.Decision = decisionTimes{stats.Quantile(r.decisions, 0.5), stats.Quantile(r.decisions, 0.99), stats.Quantile(r.decisions, 1)}
	for n := 1; n <= overlap.MaxServices; n++ {
		ratios := r.ratios[n]
		if len(ratios) == 0 && r.unknown[n] == 0 {
			continue
		}
		slices.Sort(ratios)
		e := spanErrors{
			Spans: n, Rounds: uint64(len(ratios)) + r.unknown[n], None: r.unknown[n],
			P01: stats.Quantile(ratios, 0.01), P50: stats.Quantile(ratios, 0.5), P90: stats.Quantile(ratios, 0.9), P99: stats.Quantile(ratios, 0.99),
		}
		if len(ratios) > 0 {
			e.OverBound = 100 * float64(r.over[n]) / float64(len(ratios))
		}
		for _, ratio := range ratios {
			e.MAPE += 100 * math.Abs(1-1/ratio) / float64(len(ratios))
		}
		r.Errors = append(r.Errors, e)
	}
}

// Round is one round of a log.
type Round struct {
	Number     uint64
	Line       int                 // where it stands in the log
	At         time.Duration       // when it was chosen
	Candidates []overlap.Candidate // the most urgent first
	Calls      [][]question        // what the predictor was asked
	Group      models.Group
	Queries    [][]models.QueryID // the members of the batch of each span
	Predicted  models.Estimate
	Solo       time.Duration    // the time of the spans one after another, 0 if nobody asked
	Limit      time.Duration    // what the group had to keep to, 0 if there was none
	Planned    bool             // it was chosen ahead, while another round ran
	For        time.Duration    // when the round was to start
	Dropped    []overlap.Answer // ended before it was chosen
	Decision   time.Duration    // the time that choosing it again has taken, with planning it

	Outcome  models.Outcome
	Finished time.Duration    // when it was over
	Answers  []overlap.Answer // given when it was over
}

func newRound(r *record, dropped []overlap.Answer, decision time.Duration) *Round {
	round := &Round{
		Number: r.Round, Line: r.line, At: r.At, Decision: decision,
		Predicted: models.Estimate{Latency: r.Predicted, Bound: r.Bound},
		Solo:      r.Solo, Limit: r.Limit, Planned: r.Planned != nil, For: r.At,
		Dropped: append([]overlap.Answer(nil), dropped...),
	}
	if r.Planned != nil {
		round.For = *r.Planned
	}
	for _, h := range r.Candidates {
		round.Candidates = append(round.Candidates, overlap.Candidate{
			Service: h.Service, Batch: h.Batch, Query: h.ID, Deadline: round.For + h.Headroom,
			Start: h.From, Size: h.Size, SeqLen: h.SeqLen,
			Headroom: h.Headroom, Solo: models.Estimate{Latency: h.Solo}, Place: h.Place,
		})
	}
	round.Calls = r.calls
	for _, g := range r.Group {
		round.Group.Spans = append(round.Group.Spans, models.Span{
			Service: g.Service, Batch: g.Batch, Start: g.From, End: g.To, Size: g.Size, SeqLen: g.SeqLen,
		})
		round.Queries = append(round.Queries, g.Queries)
	}
	return round
}

func (r *Round) finish(rec *record, answers []overlap.Answer) {
	r.Outcome, r.Finished = rec.outcome(), rec.At
	r.Answers = append([]overlap.Answer(nil), answers...)
}

// whole reports whether every span ran to its end, so that the time it took
// is that of what was predicted.
func (r *Round) whole() bool {
	for _, s := range r.Outcome.Spans {
		if s.Status != models.SpanDone {
			return false
		}
	}
	return len(r.Outcome.Spans) == len(r.Group.Spans)
}

// Ratio returns measured/predicted, and false if there is none.
func (r *Round) Ratio() (float64, bool) {
	if r.Predicted.Latency <= 0 || r.Outcome.Took <= 0 || !r.whole() {
		return 0, false
	}
	return float64(r.Outcome.Took) / float64(r.Predicted.Latency), true
}

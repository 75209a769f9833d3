package journal

import (
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Round is one round as the log tells it.
type Round struct {
	Number     uint64
	Line       int           // of the log
	At         time.Duration // when it was chosen
	Candidates []Candidate
	Calls      [][]Question // of the predictor
	Group      models.Group
	Queries    [][]models.QueryID // of each span
	Predicted  models.Estimate
	Solo       time.Duration    // of the spans one after another, 0 if nobody asked
	Limit      time.Duration    // that the group had to keep to, 0 if there was none
	Planned    bool             // ahead, while another round ran
	For        time.Duration    // when the round was to start
	Dropped    []overlap.Answer // before it was chosen
	Decision   time.Duration    // that choosing it again has taken, with planning it

	Outcome  overlap.Outcome
	Finished time.Duration    // when it was over
	Answers  []overlap.Answer // given then
}

// Candidate is work of one service that could have been in a round.
type Candidate struct {
	overlap.Head
	Headroom time.Duration
	Solo     time.Duration // that all that was left of it takes alone, 0 if unknown or not asked
	Place    int           // in the group, 0 if it is not in it
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
		round.Candidates = append(round.Candidates, Candidate{
			Head: overlap.Head{
				Service: h.Service, Batch: h.Batch, Query: h.ID, Deadline: round.For + h.Headroom,
				Start: h.From, Size: h.Size, SeqLen: h.SeqLen,
			},
			Headroom: h.Headroom, Solo: h.Solo, Place: h.Place,
		})
	}
	round.Calls = r.calls()
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
		if s.Status != overlap.SpanDone {
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

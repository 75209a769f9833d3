package predictor

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Overrun is a group whose round ended while some of its spans were still running. The time until
// then is not a measurement of the group, because later rounds ran alongside. But it is a lower
// bound of its latency, and Overrun reports it to the predictor. Otherwise a device that slows down
// by more than the factor allowed for a round would never be recognized as slow: every round would
// be an overrun and none would be measured.
//
// The report waits for the end of all spans. A span that never ends is never reported, so one
// query with an endless loop cannot make its service appear slow.
type Overrun struct {
	// open counts the spans that have not ended.
	group models.Group
	took  time.Duration
	open  int
}

// NewOverrun returns the overrun of a group whose round ended after took with open spans still
// running. Each span must be of a different batch.
func NewOverrun(group models.Group, took time.Duration, open int) *Overrun {
	group.Spans, group.Beside = slices.Clone(group.Spans), slices.Clone(group.Beside)
	return &Overrun{group: group, took: took, open: open}
}

// Ended records the end of a span and reports whether it was the last one. If so, and if no span
// failed or was lost, p observes the group.
func (o *Overrun) Ended(p *Predictor, now time.Duration, ended models.SpanOutcome) (over bool) {
	for i := range o.group.Spans {
		if s := &o.group.Spans[i]; s.Batch == ended.Span.Batch {
			// A span that failed is left empty, which marks the group as unusable below.
			if s.End = s.Start; ended.Status == models.SpanDone || ended.Status == models.SpanStopped {
				s.End = ended.Reached
			}
			o.open--
		}
	}
	if o.open > 0 {
		return false
	}
	if !slices.ContainsFunc(o.group.Spans, func(s models.Span) bool { return s.Len() <= 0 }) {
		// A time out of range is not worth reporting: it teaches nothing.
		_ = p.Observe(now, o.group, o.took)
	}
	return true
}

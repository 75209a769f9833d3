package predictor

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Overrun is a group that its round did not wait for: when the round ended, some of its
// spans still ran. The time until then is no measurement, since nobody knows what the group
// would have taken without the rounds that followed, but the group takes at least so long.
// Without that a device which slows down by more than the factor that a round is allowed
// would never be known to be slow: every round would be an overrun, and teach nothing.
//
// What never ends teaches nothing, or one query that loops would make its service slow.
type Overrun struct {
	group models.Group
	took  time.Duration
	open  int
}

// NewOverrun returns the overrun of a group whose round ended after a time, without so many
// of its spans, each of a batch of its own.
func NewOverrun(group models.Group, took time.Duration, open int) *Overrun {
	group.Spans = slices.Clone(group.Spans)
	return &Overrun{group: group, took: took, open: open}
}

// Ended records how a span has ended, and reports whether it was the last one. Then p
// learns, unless one has failed or its worker was lost.
func (o *Overrun) Ended(p *Predictor, now time.Duration, ended models.SpanOutcome) (over bool) {
	for i := range o.group.Spans {
		if s := &o.group.Spans[i]; s.Batch == ended.Span.Batch {
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
		_ = p.Observe(now, o.group, o.took) // it teaches nothing if it is out of range
	}
	return true
}

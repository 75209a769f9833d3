package observe

import (
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// Gain is the device time that rounds have saved compared with running their queries one
// after another. It is negative where they took longer. Overlap is the part due to running
// spans of several services at the same time, Merge the part due to dynamic batching.
type Gain struct {
	Overlap time.Duration
	Merge   time.Duration
}

// Apart is the time of a round's work without overlapping (Spans: its spans one after
// another), and without batching either (Queries: its queries one after another), by the
// isolated latencies of the predictor. It is zero if one of them is unknown, and for a
// round of one query, which can gain nothing.
type Apart struct {
	Spans   time.Duration
	Queries time.Duration
}

// Shorten subtracts the part of a span that did not run, and the same proportion from its
// queries. If the time of that part is not known, the whole value becomes unknown.
func (a *Apart) Shorten(part time.Duration, known bool) {
	if !known || part >= a.Spans {
		*a = Apart{}
		return
	}
	a.Queries -= time.Duration(float64(a.Queries) * float64(part) / float64(a.Spans))
	a.Spans -= part
}

// Gain returns what a measured round has gained, or zero if one of its spans did not run.
// The gain of a single span is due to batching alone; like isolated latencies, its time is
// that in the engine.
func (a Apart) Gain(m *executor.Outcome) Gain {
	if a == (Apart{}) || m == nil || m.Latency() <= 0 {
		return Gain{}
	}
	for i := range m.Spans {
		if s := &m.Spans[i]; s.Status != models.SpanDone && (s.Status != models.SpanStopped || s.Reached <= s.Span.Start) {
			return Gain{}
		}
	}
	if len(m.Spans) == 1 {
		return Gain{Merge: a.Queries - m.Latency()}
	}
	return Gain{Overlap: a.Spans - m.Latency(), Merge: a.Queries - a.Spans}
}

// Add adds the gain of another round.
func (g *Gain) Add(o Gain) {
	g.Overlap += o.Overlap
	g.Merge += o.Merge
}

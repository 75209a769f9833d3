package observe

import (
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// Gain is how much device time was saved: by how much rounds took less than their
// queries would have taken alone, one after another. It is negative where they took
// more.
type Gain struct {
	Overlap time.Duration // by running spans of several services at once
	Merge   time.Duration // by running several queries as one batch
}

// Apart is what the work of a round takes without overlapping, or without merging
// either, by the solo times of the predictor. It is zero where one of them is not
// known, and for a round of one query, which can gain nothing.
type Apart struct {
	Spans   time.Duration // its spans, one after another
	Queries time.Duration // its queries, each in a batch of its own, one after another
}

// Shorten takes a part off one of the spans that did not run, and as much off its queries
// in proportion. If it is not known how long that takes, nothing is known.
func (a *Apart) Shorten(part time.Duration, known bool) {
	if !known || part >= a.Spans {
		*a = Apart{}
		return
	}
	a.Queries -= time.Duration(float64(a.Queries) * float64(part) / float64(a.Spans))
	a.Spans -= part
}

// Gain returns what a round gained that was measured, or zero if not all of it ran. What a span that ran alone gained is all due to merging; its time is that in
// the engine, as solo times are.
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

// Add adds what another round gained.
func (g *Gain) Add(o Gain) {
	g.Overlap += o.Overlap
	g.Merge += o.Merge
}

package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Predictor tells the latency of operator groups.
type Predictor interface {
	// Predict sets latencies[i] to the latency of groups[i], or to 0 if it
	// is unknown. It keeps neither slice and must depend on nothing but its
	// arguments and what it was told before.
	Predict(groups []models.Group, latencies []time.Duration)
}

// prediction asks a Predictor about one group at a time, without allocating.
type prediction struct {
	Predictor
	groups    [1]models.Group
	latencies [1]time.Duration
	spans     [1]models.Span
}

func (p *prediction) group(g models.Group) time.Duration {
	p.groups[0], p.latencies[0] = g, 0
	p.Predict(p.groups[:], p.latencies[:])
	return max(p.latencies[0], 0)
}

func (p *prediction) span(s models.Span) time.Duration {
	p.spans[0] = s
	return p.group(models.Group{Spans: p.spans[:]})
}

package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Predictor tells the latency of operator groups.
type Predictor interface {
	// Predict sets estimates[i] to the estimate of groups[i], or to zero if
	// it is unknown. It keeps neither slice and must depend on nothing but
	// its arguments and what it was told before.
	Predict(groups []models.Group, estimates []models.Estimate)
}

// prediction asks a Predictor about one group at a time, without allocating.
type prediction struct {
	Predictor
	groups    [1]models.Group
	estimates [1]models.Estimate
	spans     [1]models.Span
}

func (p *prediction) group(g models.Group) time.Duration {
	p.groups[0], p.estimates[0] = g, models.Estimate{}
	p.Predict(p.groups[:], p.estimates[:])
	return max(p.estimates[0].Latency, 0)
}

func (p *prediction) span(s models.Span) time.Duration {
	p.spans[0] = s
	return p.group(models.Group{Spans: p.spans[:]})
}

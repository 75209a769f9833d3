package sim

import (
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// Knowledge is what the scheduler knows of how long groups take.
type Knowledge string

// The kinds of knowledge. With less than all of it a query is dropped only once
// its deadline has passed, and otherwise runs even if it ends late, as on the
// server of the Abacus authors (section 7.1): nothing under its fcfs and edf,
// the order under its sjf. Nothing is overlapped or merged then.
const (
	KnowsAll     Knowledge = "all"
	KnowsOrder   Knowledge = "order"   // when it puts queries into their order, and not when it chooses a group
	KnowsNothing Knowledge = "nothing" // not even when it orders
)

// Knowledges lists them.
func Knowledges() []Knowledge { return []Knowledge{KnowsAll, KnowsOrder, KnowsNothing} }

func (sc *Scenario) knows() Knowledge {
	if sc.Knows == "" {
		return KnowsAll
	}
	return sc.Knows
}

// informant is the predictor of a scheduler that does not know everything. What
// it does not tell is unknown, so that nothing is dropped for it.
type informant struct {
	overlap.Predictor
	knows    Knowledge
	choosing bool // the scheduler is asked for a group
}

func (p *informant) Predict(groups []models.Group, estimates []models.Estimate) {
	if p.knows == KnowsNothing || p.knows == KnowsOrder && p.choosing {
		clear(estimates)
		return
	}
	p.Predictor.Predict(groups, estimates)
}

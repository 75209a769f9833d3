package journal

import (
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// asked is a predictor that writes down what it was asked and what it said.
type asked struct {
	overlap.Predictor
	on   bool
	line line
}

// begin forgets what was asked before.
func (a *asked) begin(on bool) {
	a.on = on
	a.line.buf = append(a.line.buf[:0], '[')
}

func (a *asked) any() bool { return len(a.line.buf) > 1 }

func (a *asked) Predict(groups []models.Group, estimates []models.Estimate) {
	a.Predictor.Predict(groups, estimates)
	if a.on {
		a.line.question(groups, estimates)
	}
}

package fit

import (
	"context"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Constants of few rows.
const (
	fewRows    = 4000 // at most so many to fit with are few
	fewDecay   = 1.0
	fewEpochs  = 60
	keptSteps  = 4   // parts of the network's correction that are tried, but for none
	keptErrors = 2.0 // standard errors that a correction must gain over none
)

// Restraint keeps a fit from taking the spread of a few rows for a rule. Of
// few rows it is chosen by trial: the rows to fit with are divided into folds,
// and each is predicted by what the others teach. Rows kept aside to test with
// have no part in it.
type Restraint struct {
	Costs string  `json:"costs"` // how firmly they are held to what is likely
	Decay float64 `json:"decay"` // of weights
	Kept  float64 `json:"kept"`  // part of the network's correction; 0 leaves costs alone
	Folds int     `json:"folds"` // it was chosen by, 0 if rows are many

	// Mean absolute percentage errors over the folds.
	CostsError float64 `json:"costs_error,omitempty"` // of costs alone
	Error      float64 `json:"error,omitempty"`

	hold firmness
}

// few reports whether so many rows to fit with are few.
func few(o *Options, rows int) bool { return rows <= fewRows && !o.allMany }

// restrain chooses how a fit to rows is restrained.
func restrain(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, stage string) (*Restraint, error) {
	t, r, err := restrainCosts(ctx, d, rows, o, stage)
	if err != nil || t == nil {
		return r, err
	}
	corrected, err := t.corrected(ctx, o, stage)
	if err != nil {
		return nil, err
	}
	r.Kept, r.Error = t.keep(corrected)
	return r, nil
}

// restrainCosts chooses how firmly costs are held, and returns the trial of
// that, or none if rows are many.
func restrainCosts(ctx context.Context, d *training.Dataset, rows []training.Row, o *Options, stage string) (*trial, *Restraint, error) {
	r := &Restraint{Decay: newSchedule(o, len(rows)).decay, Kept: 1, hold: firmnesses[0], Costs: firmnesses[0].name}
	if !few(o, len(rows)) {
		return nil, r, nil
	}
	r.Folds, r.CostsError = trialFolds, math.Inf(1)
	var best *trial
	for _, hold := range firmnesses {
		o.report(Progress{Stage: stage + ", trial of costs"})
		t, err := tryCosts(ctx, d, rows, o, hold)
		if err != nil {
			return nil, nil, err
		}
		if off := mape(t.points(t.bases)); off < r.CostsError {
			best, r.hold, r.Costs, r.CostsError = t, hold, hold.name, off
		}
	}
	if best == nil {
		return nil, nil, fmt.Errorf("%w: costs are no numbers", ErrDiverged)
	}
	return best, r, nil
}

// shrink makes a network's output that part of what it is.
func shrink(layers []predictor.Layer, part float64) {
	last := &layers[len(layers)-1]
	for _, values := range [][]float32{last.Weights, last.Bias} {
		for i := range values {
			values[i] *= float32(part)
		}
	}
}

// text says how a fit was restrained.
func (r *Restraint) text() string {
	text := fmt.Sprintf("costs held %s, weights decay by %v", r.Costs, r.Decay)
	if r.Folds == 0 {
		return text
	}
	return fmt.Sprintf("%s, %.0f %% of the correction kept: by %d folds of the rows to fit with, on which costs alone err %.2f %%, with the network %.2f %%",
		text, 100*r.Kept, r.Folds, r.CostsError, r.Error)
}

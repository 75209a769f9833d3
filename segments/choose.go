package segments

import (
	"errors"
	"fmt"
	"time"
)

// Limits of choosing.
const (
	// costLimit is by how much longer a cut model may take than the whole one.
	costLimit = 0.05

	// FinestChoice is the largest number of segments that is tried.
	FinestChoice = 64

	// chooseRounds is how often a cut takes turns with the whole, for each batch,
	// after chooseWarmups that are not timed; chooseLeast is after how many the
	// time may end it.
	chooseRounds  = 11
	chooseLeast   = 5
	chooseWarmups = 2

	// hopelessCost is from what part of the limit on a cut is not tried that is
	// expected to exceed it, as one that was measured tells.
	hopelessCost = 2
)

// ChooseSpec asks a worker to choose into how many segments its model is cut,
// by measuring what cutting costs on its device.
type ChooseSpec struct {
	Known       *CutChoice `json:"known,omitempty"`        // what was chosen before: it is taken if it is of this model, nothing is measured then
	Finest      int        `json:"finest,omitempty"`       // segments that are tried at most, 0 for DefaultCUDATarget
	BudgetNanos int64      `json:"budget_nanos,omitempty"` // after which no further cut is tried
}

// CutChoice is into how many segments a model is cut, and why.
type CutChoice struct {
	Hash       string    `json:"hash"`        // of the model
	ORTVersion string    `json:"ort_version"` // that ran it
	MaxBatch   int       `json:"max_batch"`   // the largest batch that was measured
	Finest     int       `json:"finest"`      // segments that were tried at most
	SeqLen     int       `json:"seq_len"`     // that was measured, of a model that has one
	Target     int       `json:"target"`      // what to cut it into, as LoadSpec.CutTarget has it; 1 for not at all
	Limit      float64   `json:"limit"`       // what a cut may cost, relative to the whole
	Costs      []CutCost `json:"costs"`       // as measured, the finest first; none if nothing could be
	Reason     string    `json:"reason"`
}

// CutCost is what a cut costs with one batch: medians of runs that took turns.
type CutCost struct {
	Segments   int   `json:"segments"`
	Batch      int   `json:"batch"`
	WholeNanos int64 `json:"whole_ns"`
	CutNanos   int64 `json:"cut_ns"`
}

// Relative returns by which part of the whole's time the cut takes longer.
func (c *CutCost) Relative() float64 {
	return float64(c.CutNanos)/float64(max(c.WholeNanos, 1)) - 1
}

// Measured reports whether the choice is worth keeping: it comes of measuring.
func (c *CutChoice) Measured() bool { return c != nil && len(c.Costs) > 0 }

// holds reports whether a choice is for what is asked now. Of which model it is,
// loading that tells.
func (c *CutChoice) holds(of *CutChoice) bool {
	return c.Measured() && c.Target > 0 && c.ORTVersion == of.ORTVersion && c.MaxBatch == of.MaxBatch && c.Finest == of.Finest && c.SeqLen == of.SeqLen
}

// worst returns the largest cost of a cut, over the batches.
func (c *CutChoice) worst(segments int) (worst float64) {
	for i := range c.Costs {
		if c.Costs[i].Segments == segments {
			worst = max(worst, c.Costs[i].Relative())
		}
	}
	return worst
}

// cutBench measures cuts of one model.
type cutBench interface {
	// open loads a cut, in the place of the one before, and returns how many
	// segments it has. The error is ErrDeviceFull if there is no room for it
	// beside the whole model.
	open(target int) (segments int, err error)

	// time runs the whole model and the open cut in turns with a batch.
	time(batch int, more func(rounds int) bool) (whole, cut time.Duration, err error)
}

// choice is one that is being made.
type choice struct {
	*CutChoice
	bench   cutBench
	batches []int
	over    func() bool       // no time is left
	at      func(cut, of int) // is told which of the cuts is tried next
}

// errNoTime ends choosing.
var errNoTime = errors.New("no time is left")

// cuts returns the cuts that are tried, the finest first: each has about two
// thirds of the segments of the one before.
func cuts(finest int) (targets []int) {
	for n := finest; n > 1; n = n * 2 / 3 {
		targets = append(targets, n)
	}
	return targets
}

// run tries cuts from the finest on, until one costs little enough with every
// batch, and takes that. If none does, the model is not cut. An error is one of
// running the model.
func (c *choice) run() error {
	targets := cuts(c.Finest)
	tried, cost := 0, 0.0 // the last that was measured
	for i, target := range targets {
		if tried > 0 && (target >= tried || expected(tried, cost, target) > hopelessCost*c.Limit) {
			continue
		}
		c.at(i, len(targets))
		segments, err := c.try(target, tried)
		switch {
		case errors.Is(err, errNoTime):
			c.guess(targets[i:], tried, cost)
			return nil
		case errors.Is(err, ErrDeviceFull):
			continue
		case err != nil:
			return err
		case segments == tried:
			continue
		}
		if tried, cost = segments, c.worst(segments); cost <= c.Limit {
			c.take(target, fmt.Sprintf("the finest of those tried that costs at most %.0f %%: %.1f %%", 100*c.Limit, 100*cost))
			return nil
		}
	}
	if tried == 0 {
		return ErrDeviceFull
	}
	c.take(1, fmt.Sprintf("no cut stays within %.0f %%: %d segments cost %.1f %%", 100*c.Limit, tried, 100*cost))
	return nil
}

// expected returns what a cut would cost if each border cost the same.
func expected(segments int, cost float64, target int) float64 {
	return cost * float64(target-1) / float64(max(segments-1, 1))
}

// try measures a cut, unless it has as many segments as the one before.
func (c *choice) try(target, before int) (segments int, err error) {
	if c.over() {
		return 0, errNoTime
	}
	if segments, err = c.bench.open(target); err != nil || segments == before {
		return segments, err
	}
	var costs []CutCost
	for _, batch := range c.batches {
		if c.over() {
			return 0, errNoTime
		}
		whole, cut, err := c.bench.time(batch, func(n int) bool { return n < chooseRounds && (n < chooseLeast || !c.over()) })
		if err != nil {
			return 0, err
		}
		costs = append(costs, CutCost{segments, batch, int64(whole), int64(cut)})
	}
	c.Costs = append(c.Costs, costs...)
	return segments, nil
}

// guess takes what a cut is expected to cost when the time is over before one
// was found, or the default if nothing is known.
func (c *choice) guess(left []int, tried int, cost float64) {
	if tried == 0 {
		c.take(min(DefaultCUDATarget, c.Finest), "there was no time to measure any cut")
		return
	}
	for _, target := range left {
		if target < tried && expected(tried, cost, target) <= c.Limit {
			c.take(target, fmt.Sprintf("not measured, for the time was over: %d segments cost %.1f %%, so these should stay within %.0f %%", tried, 100*cost, 100*c.Limit))
			return
		}
	}
	c.take(1, fmt.Sprintf("not measured, for the time was over: %d segments cost %.1f %%", tried, 100*cost))
}

func (c *choice) take(target int, reason string) { c.Target, c.Reason = target, reason }

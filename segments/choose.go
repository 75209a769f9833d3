package segments

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/segments/wire"
)

// Limits of choosing.
const (
	// costLimit is by how much longer a cut model may take than the whole one.
	costLimit = 0.05

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

// holds reports whether a choice was made for what is asked now. Whether it is of
// the same model turns out when that is loaded.
func holds(c, of *wire.CutChoice) bool {
	return c.Measured() && c.Target > 0 && c.ORTVersion == of.ORTVersion && c.MaxBatch == of.MaxBatch && c.Finest == of.Finest && c.SeqLen == of.SeqLen
}

// worst returns the largest cost of a cut, over the batches.
func (c *choice) worst(segments int) (worst float64) {
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
	*wire.CutChoice
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
		case errors.Is(err, wire.ErrDeviceFull):
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
		return wire.ErrDeviceFull
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
	var costs []wire.CutCost
	for _, batch := range c.batches {
		if c.over() {
			return 0, errNoTime
		}
		whole, cut, err := c.bench.time(batch, func(n int) bool { return n < chooseRounds && (n < chooseLeast || !c.over()) })
		if err != nil {
			return 0, err
		}
		costs = append(costs, wire.CutCost{Segments: segments, Batch: batch, WholeNanos: int64(whole), CutNanos: int64(cut)})
	}
	c.Costs = append(c.Costs, costs...)
	return segments, nil
}

// guess takes what a cut is expected to cost when the time is over before one
// was found, or the default if nothing is known.
func (c *choice) guess(left []int, tried int, cost float64) {
	if tried == 0 {
		c.take(min(wire.DefaultCUDATarget, c.Finest), "there was no time to measure any cut")
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

package gpu

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/segments/wire"
)

// Limits of choosing a cut by measurement.
const (
	// costLimit is the largest acceptable cost of a cut: the latency of the cut model over
	// that of the whole model, minus 1.
	costLimit = 0.05

	// chooseRounds is how often a cut and the whole model run alternately with each batch
	// size. When the time budget is spent, chooseLeast rounds suffice.
	chooseRounds = 11
	chooseLeast  = 5

	// hopelessCost is a multiple of the limit. A cut is skipped if its expected cost,
	// extrapolated from a finer cut, exceeds hopelessCost times the limit.
	hopelessCost = 2
)

// Ask returns a choice without a result, with everything that it depends on except the
// model. Cuts are measured with the given sequence length, or with the shortest that the spec
// warms up.
func Ask(version string, spec *wire.LoadSpec, seqLen int) *wire.CutChoice {
	asked := &wire.CutChoice{
		ORTVersion: version, MaxBatch: max(spec.MaxBatch, 1), Finest: wire.DefaultCUDATarget,
		SeqLen: seqLen, Limit: costLimit, Costs: []wire.CutCost{},
	}
	if finest := spec.Choose.Finest; finest > 0 {
		asked.Finest = min(finest, wire.FinestChoice)
	}
	if len(spec.WarmSeqLens) > 0 {
		asked.SeqLen = slices.Min(spec.WarmSeqLens) // where cutting is relatively most expensive
	}
	return asked
}

// Holds reports whether the choice c was made under the same conditions as of. It does not
// compare the models, because the hash of the model is known only once it is loaded.
func Holds(c, of *wire.CutChoice) bool {
	return c.Measured() && c.Target > 0 && c.ORTVersion == of.ORTVersion && c.MaxBatch == of.MaxBatch && c.Finest == of.Finest && c.SeqLen == of.SeqLen
}

// worst returns the largest measured cost of a cut with this number of segments, over the
// batch sizes.
func (c *choice) worst(segments int) (worst float64) {
	for i := range c.made.Costs {
		if c.made.Costs[i].Segments == segments {
			worst = max(worst, c.made.Costs[i].Relative())
		}
	}
	return worst
}

// bench measures cuts of one model.
type bench interface {
	// Over reports whether the time budget is spent.
	Over() bool

	// Open loads a cut in place of the one before, and returns its number of segments. The
	// error is wire.ErrDeviceFull if the cut does not fit alongside the whole model.
	Open(target int) (segments int, err error)

	// Time runs the whole model and the open cut alternately with a batch of this size
	// while more returns true, and returns the median time of each.
	Time(batch int, more func(rounds int) bool) (whole, cut time.Duration, err error)
}

// choice is a choice of a cut while it is being made.
type choice struct {
	made  *wire.CutChoice
	bench bench
}

// errNoTime is returned by try when the time budget is spent.
var errNoTime = errors.New("no time is left")

// cuts returns the numbers of segments to try, the largest first. Each is about two thirds
// of the one before.
func cuts(finest int) (targets []int) {
	for n := finest; n > 1; n = n * 2 / 3 {
		targets = append(targets, n)
	}
	return targets
}

// Choose completes the choice made, which comes from Ask. It tries cuts, starting with the
// finest, and takes the first whose cost is within the limit for every batch size. If none
// is, it chooses not to cut the model. An error comes from loading or running the model. trying is called before each cut
// that is tried, with its position in the list of cuts and their number.
func Choose(made *wire.CutChoice, b bench, trying func(cut, of int)) error {
	c := choice{made, b}
	targets := cuts(c.made.Finest)
	tried, cost := 0, 0.0 // of the last cut that was measured
	for i, target := range targets {
		if tried > 0 && (target >= tried || expected(tried, cost, target) > hopelessCost*c.made.Limit) {
			continue
		}
		trying(i, len(targets))
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
		if tried, cost = segments, c.worst(segments); cost <= c.made.Limit {
			c.take(target, fmt.Sprintf("the finest cut measured that costs at most %.0f %%: %.1f %%", 100*c.made.Limit, 100*cost))
			return nil
		}
	}
	if tried == 0 {
		return wire.ErrDeviceFull
	}
	c.take(1, fmt.Sprintf("no cut stays within %.0f %%: %d segments cost %.1f %%", 100*c.made.Limit, tried, 100*cost))
	return nil
}

// expected extrapolates the cost of a cut with target segments from a measured one,
// assuming that every border costs the same.
func expected(segments int, cost float64, target int) float64 {
	return cost * float64(target-1) / float64(max(segments-1, 1))
}

// try measures a cut and returns its number of segments. It does not measure a cut that has
// the same number of segments as the one before.
func (c *choice) try(target, before int) (segments int, err error) {
	if c.bench.Over() {
		return 0, errNoTime
	}
	if segments, err = c.bench.Open(target); err != nil || segments == before {
		return segments, err
	}
	var costs []wire.CutCost
	for _, batch := range slices.Compact([]int{1, max(c.made.MaxBatch, 1)}) {
		if c.bench.Over() {
			return 0, errNoTime
		}
		whole, cut, err := c.bench.Time(batch, func(n int) bool { return n < chooseRounds && (n < chooseLeast || !c.bench.Over()) })
		if err != nil {
			return 0, err
		}
		costs = append(costs, wire.CutCost{Segments: segments, Batch: batch, WholeNanos: int64(whole), CutNanos: int64(cut)})
	}
	c.made.Costs = append(c.made.Costs, costs...)
	return segments, nil
}

// guess chooses by expected costs when the time budget is spent before an acceptable cut
// was measured. If no cut was measured at all, it takes the default.
func (c *choice) guess(left []int, tried int, cost float64) {
	if tried == 0 {
		c.take(min(wire.DefaultCUDATarget, c.made.Finest), "no cut could be measured in the time allowed")
		return
	}
	for _, target := range left {
		if target < tried && expected(tried, cost, target) <= c.made.Limit {
			c.take(target, fmt.Sprintf("not measured for lack of time: %d segments cost %.1f %%, so these should stay within %.0f %%", tried, 100*cost, 100*c.made.Limit))
			return
		}
	}
	c.take(1, fmt.Sprintf("not measured for lack of time: %d segments cost %.1f %%", tried, 100*cost))
}

// take records the result and the reason for it.
func (c *choice) take(target int, reason string) { c.made.Target, c.made.Reason = target, reason }

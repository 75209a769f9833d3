package segments

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// Limits of choosing a cut by measurement.
const (
	// costLimit is the largest acceptable cost of a cut: the latency of the cut model over
	// that of the whole model, minus 1.
	costLimit = 0.05

	// chooseRounds is how often a cut and the whole model run alternately with each batch
	// size, after chooseWarmups rounds that are not timed. When the time budget is spent,
	// chooseLeast timed rounds suffice.
	chooseRounds  = 11
	chooseLeast   = 5
	chooseWarmups = 2

	// hopelessCost is a multiple of the limit. A cut is skipped if its expected cost,
	// extrapolated from a finer cut, exceeds hopelessCost times the limit.
	hopelessCost = 2
)

// holds reports whether the choice c was made under the same conditions as of. It does not compare
// the models, because the hash of the model is known only once it is loaded.
func holds(c, of *wire.CutChoice) bool {
	return c.Measured() && c.Target > 0 && c.ORTVersion == of.ORTVersion && c.MaxBatch == of.MaxBatch && c.Finest == of.Finest && c.SeqLen == of.SeqLen
}

// worst returns the largest measured cost of a cut with this number of segments, over the
// batch sizes.
func (c *choice) worst(segments int) (worst float64) {
	for i := range c.Costs {
		if c.Costs[i].Segments == segments {
			worst = max(worst, c.Costs[i].Relative())
		}
	}
	return worst
}

// cutBench measures cuts of one model. Tests replace it.
type cutBench interface {
	// open loads a cut in place of the one before, and returns its number of segments. The
	// error is ErrDeviceFull if the cut does not fit alongside the whole model.
	open(target int) (segments int, err error)

	// time runs the whole model and the open cut alternately with a batch of this size
	// while more returns true, and returns the median time of each.
	time(batch int, more func(rounds int) bool) (whole, cut time.Duration, err error)
}

// choice is a choice of a cut while it is being made.
type choice struct {
	*wire.CutChoice
	bench   cutBench
	batches []int

	// over reports whether the time budget is spent.
	over func() bool

	// at is called before each cut that is tried, with its position in the list of cuts and
	// their number.
	at func(cut, of int)
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

// run tries cuts, starting with the finest, and takes the first whose cost is within the
// limit for every batch size. If none is, it chooses not to cut the model. An error comes
// from loading or running the model.
func (c *choice) run() error {
	targets := cuts(c.Finest)
	tried, cost := 0, 0.0 // of the last cut that was measured
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
			c.take(target, fmt.Sprintf("the finest cut measured that costs at most %.0f %%: %.1f %%", 100*c.Limit, 100*cost))
			return nil
		}
	}
	if tried == 0 {
		return wire.ErrDeviceFull
	}
	c.take(1, fmt.Sprintf("no cut stays within %.0f %%: %d segments cost %.1f %%", 100*c.Limit, tried, 100*cost))
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

// guess chooses by expected costs when the time budget is spent before an acceptable cut
// was measured. If no cut was measured at all, it takes the default.
func (c *choice) guess(left []int, tried int, cost float64) {
	if tried == 0 {
		c.take(min(wire.DefaultCUDATarget, c.Finest), "no cut could be measured in the time allowed")
		return
	}
	for _, target := range left {
		if target < tried && expected(tried, cost, target) <= c.Limit {
			c.take(target, fmt.Sprintf("not measured for lack of time: %d segments cost %.1f %%, so these should stay within %.0f %%", tried, 100*cost, 100*c.Limit))
			return
		}
	}
	c.take(1, fmt.Sprintf("not measured for lack of time: %d segments cost %.1f %%", tried, 100*cost))
}

// take records the result and the reason for it.
func (c *choice) take(target int, reason string) { c.Target, c.Reason = target, reason }

// openChosen opens a service's model. If the spec asks for a choice, the cut is the one
// chosen earlier, as long as it still holds, or one chosen now by measuring; otherwise the
// spec gives the cut and the returned choice is nil. Measuring is finished before the
// worker reports that it is ready, so no query is served meanwhile.
func openChosen(env *ort.Env, c Config, spec *wire.LoadSpec) (*CutModel, *wire.CutChoice, error) {
	c.Target = spec.CutTarget
	if c.Target == 0 && c.Device != nil {
		c.Target = wire.DefaultCUDATarget
	}
	if spec.CutTarget != 0 || spec.Choose == nil {
		m, err := OpenModel(env, c)
		return m, nil, err
	}
	asked := askedOf(env, spec)
	if known := spec.Choose.Known; holds(known, asked) {
		cut := c
		cut.Target = known.Target
		m, err := OpenModel(env, cut)
		if err != nil || m.Model().Hash == known.Hash {
			return m, known, err
		}
		if err := m.Close(); err != nil { // the file has changed since
			return nil, nil, err
		}
	}
	made, err := measureCuts(env, c, spec, asked)
	if err != nil {
		return nil, nil, err
	}
	c.Target = made.Target
	m, err := OpenModel(env, c)
	return m, made, err
}

// askedOf returns a choice without a result, with everything that it depends on except the
// model.
func askedOf(env *ort.Env, spec *wire.LoadSpec) *wire.CutChoice {
	asked := &wire.CutChoice{
		ORTVersion: env.Library().Version(), MaxBatch: max(spec.MaxBatch, 1), Finest: wire.DefaultCUDATarget,
		SeqLen: warmSeqLen, Limit: costLimit, Costs: []wire.CutCost{},
	}
	if finest := spec.Choose.Finest; finest > 0 {
		asked.Finest = min(finest, wire.FinestChoice)
	}
	if len(spec.WarmSeqLens) > 0 {
		asked.SeqLen = slices.Min(spec.WarmSeqLens) // where cutting is relatively most expensive
	}
	return asked
}

// measureCuts completes the choice made by measuring cuts. If measuring fails, as for a
// model for which no inputs can be generated, it keeps the target of c and records the
// reason. It returns an error only if the device is lost.
func measureCuts(env *ort.Env, c Config, spec *wire.LoadSpec, made *wire.CutChoice) (_ *wire.CutChoice, err error) {
	b := &modelBench{env: env, config: c, seqLen: made.SeqLen, queries: map[int]worker.Query{}}
	b.config.Progress = func(string, int64, int64) {} // the progress of loading each candidate is not shown
	b.config.Rungs = 1                                // sessions for more batch sizes take time to load and do not affect the cost
	defer func() {
		if cerr := b.close(); errors.Is(cerr, wire.ErrDeviceLost) {
			err = errors.Join(err, cerr)
		}
	}()
	measured := choice{
		CutChoice: made, bench: b, batches: []int{1},
		at:   func(cut, of int) { c.Progress("choose", int64(cut), int64(of)) },
		over: func() bool { return b.spent > time.Duration(spec.Choose.BudgetNanos) },
	}
	if made.MaxBatch > 1 {
		measured.batches = append(measured.batches, made.MaxBatch)
	}
	if b.whole, err = b.load(1); err == nil {
		made.Hash = b.whole.Model().Hash
		err = measured.run()
	}
	if errors.Is(err, wire.ErrDeviceLost) {
		return nil, err
	}
	if err != nil { // loading the chosen model decides whether it can be served
		made.Target, made.Costs = c.Target, []wire.CutCost{}
		made.Reason = fmt.Sprintf("the cost of cuts cannot be measured: %v", err)
	}
	return made, nil
}

// modelBench is the cutBench of a real model. The whole model runs in the same engine as a
// single segment, so that nothing but the cut differs.
type modelBench struct {
	env    *ort.Env
	config Config
	whole  *CutModel
	cut    *CutModel
	seqLen int

	// spent is the time spent on loading and running.
	spent time.Duration

	// queries holds the query of zeros for each batch size.
	queries map[int]worker.Query
}

// spend adds the time since began to spent.
func (b *modelBench) spend(began time.Time) { b.spent += time.Since(began) }

// load opens the model with the given number of segments.
func (b *modelBench) load(target int) (*CutModel, error) {
	defer b.spend(time.Now())
	b.config.Target = target
	return OpenModel(b.env, b.config)
}

func (b *modelBench) open(target int) (int, error) {
	err := b.closeCut()
	if err == nil {
		err = b.room(target)
	}
	if err == nil {
		b.cut, err = b.load(target)
	}
	if err != nil {
		return 0, err
	}
	return len(b.cut.sessions), nil
}

// room returns ErrDeviceFull if a cut does not fit on the device alongside the whole model.
func (b *modelBench) room(target int) error {
	free, given, err := b.whole.device.free()
	if err != nil {
		return err
	}
	needs := wire.NeedDeviceMemory(b.whole.memory.Weights, target)
	beside := needs.Weights + needs.Handles
	if beside > free || given > 0 && b.whole.memory.Sum()+beside > given {
		return fmt.Errorf("%w: %d segments in addition to the whole model need %d MiB more", wire.ErrDeviceFull, target, beside>>20)
	}
	return nil
}

func (b *modelBench) time(batch int, more func(rounds int) bool) (whole, cut time.Duration, err error) {
	q, ok := b.queries[batch]
	if !ok {
		if q, _, err = b.whole.zeroQuery(batch, b.seqLen); err != nil {
			return 0, 0, err
		}
		b.queries[batch] = q
	}
	run := func(m *CutModel) func() error {
		return func() error {
			defer b.spend(time.Now())
			return m.runOnce(q)
		}
	}
	runWhole, runCut := run(b.whole), run(b.cut)
	if _, _, err = TakeTurns(runWhole, runCut, func(n int) bool { return n < chooseWarmups }); err != nil {
		return 0, 0, err
	}
	a, c, err := TakeTurns(runWhole, runCut, more)
	return stats.Median(a), stats.Median(c), err
}

// runOnce runs a batch of one query to its end and releases it.
func (m *CutModel) runOnce(q worker.Query) error {
	if err := m.Start(warmBatch, []worker.Query{q}); err != nil {
		return err
	}
	defer m.Release(warmBatch)
	if _, err := m.Run(warmBatch, 0, len(m.sessions), nil); err != nil {
		return err
	}
	return m.device.fault(m.run.collect())
}

// closeCut closes the open cut, if any.
func (b *modelBench) closeCut() error {
	if b.cut == nil {
		return nil
	}
	m := b.cut
	b.cut = nil
	return m.Close()
}

func (b *modelBench) close() error {
	err := b.closeCut()
	if b.whole != nil {
		err = errors.Join(err, b.whole.Close())
	}
	for _, q := range b.queries {
		unmapQuery(q)
	}
	return err
}

// TakeTurns runs two functions alternately and swaps their order in each round, so that
// anything that slows the machine down affects both. It continues while more returns true
// for the number of completed rounds. It returns the times of each function by round.
func TakeTurns(first, second func() error, more func(rounds int) bool) (a, b []time.Duration, err error) {
	runs := [2]func() error{first, second}
	var took [2][]time.Duration
	for n := 0; more(n); n++ {
		for i := range runs {
			at := (i + n) % 2
			started := time.Now()
			if err := runs[at](); err != nil {
				return nil, nil, err
			}
			took[at] = append(took[at], time.Since(started))
		}
	}
	return took[0], took[1], nil
}

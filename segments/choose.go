package segments

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
	"github.com/overlapd/overlapd/stats"
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
	// expected to exceed it, by what a finer one was measured to cost.
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

func (c *choice) take(target int, reason string) { c.Target, c.Reason = target, reason }

// openChosen opens a service's model, cut as the spec says, as was chosen before,
// or as is chosen now by measuring. The choice is nil if the spec asks for none.
// It is made before the worker is ready, so nothing is served meanwhile.
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
		if err := m.Close(); err != nil { // the file is another one now
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

// askedOf returns a choice that is not made yet, with all that it depends on but
// the model.
func askedOf(env *ort.Env, spec *wire.LoadSpec) *wire.CutChoice {
	asked := &wire.CutChoice{
		ORTVersion: env.Library().Version(), MaxBatch: max(spec.MaxBatch, 1), Finest: wire.DefaultCUDATarget,
		SeqLen: warmSeqLen, Limit: costLimit, Costs: []wire.CutCost{},
	}
	if finest := spec.Choose.Finest; finest > 0 {
		asked.Finest = min(finest, wire.FinestChoice)
	}
	if len(spec.WarmSeqLens) > 0 {
		asked.SeqLen = slices.Min(spec.WarmSeqLens) // where cutting costs most
	}
	return asked
}

// measureCuts chooses. Where that is not possible, as for a model that nothing
// can be made up for, the target of c stays, and the reason is told; only that
// the device is lost is an error.
func measureCuts(env *ort.Env, c Config, spec *wire.LoadSpec, made *wire.CutChoice) (_ *wire.CutChoice, err error) {
	b := &modelBench{env: env, config: c, seqLen: made.SeqLen, queries: map[int]worker.Query{}}
	b.config.Progress = func(string, int64, int64) {} // of each model that is tried
	b.config.Rungs = 1                                // more would take the time for trying, and change no cost
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
	if err != nil { // whether the model can be served at all, loading it will tell
		made.Target, made.Costs = c.Target, []wire.CutCost{}
		made.Reason = fmt.Sprintf("the cost of cuts cannot be measured: %v", err)
	}
	return made, nil
}

// modelBench measures cuts of a model beside the whole of it, which is the same
// engine with one segment: what differs is the cut and nothing else.
type modelBench struct {
	env     *ort.Env
	config  Config
	whole   *CutModel
	cut     *CutModel
	seqLen  int
	spent   time.Duration        // on loading and running
	queries map[int]worker.Query // by batch, of zeros
}

// spend counts the time since began.
func (b *modelBench) spend(began time.Time) { b.spent += time.Since(began) }

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

// room returns ErrDeviceFull if a cut does not fit the device beside the whole.
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

// runOnce runs a batch of one query to its end and forgets it.
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

// TakeTurns runs two things one after the other, in changing order, so that
// whatever slows the machine down slows both. It goes on while more
// returns true for the number of rounds done, and returns how long each took, by
// round.
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

package segments

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/gpu"
	"github.com/overlapd/overlapd/segments/wire"
)

// openChosen opens a service's model. If the spec asks for a choice, the cut is the one
// chosen earlier, as long as it still holds, or one chosen now by measuring; otherwise the
// spec gives the cut and the returned choice is nil. Measuring is finished before the
// worker reports that it is ready, so no query is served meanwhile.
func openChosen(env *ort.Env, c Config, spec *wire.LoadSpec) (*CutModel, *wire.CutChoice, error) {
	c.Target = spec.CutTarget
	if c.Target == 0 && c.Device != nil {
		c.Target = wire.DefaultCUDATarget
	}
	var choice *wire.CutChoice
	if spec.CutTarget == 0 && spec.Choose != nil {
		choice = gpu.Ask(env.Library().Version(), spec, warmSeqLen)
		if known := spec.Choose.Known; gpu.Holds(known, choice) {
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
		if err := measureCuts(env, c, spec, choice); err != nil {
			return nil, nil, err
		}
		c.Target = choice.Target
	}
	m, err := OpenModel(env, c)
	return m, choice, err
}

// measureCuts completes the choice made by measuring cuts. If measuring fails, as for a
// model for which no inputs can be generated, it keeps the target of c and records the
// reason. It returns an error only if the device is lost.
func measureCuts(env *ort.Env, c Config, spec *wire.LoadSpec, made *wire.CutChoice) (err error) {
	b := &modelBench{env: env, config: c, seqLen: made.SeqLen, queries: map[int]wire.QueryTensors{}, budget: time.Duration(spec.Choose.BudgetNanos)}
	b.config.Progress = func(string, int64, int64) {} // the progress of loading each candidate is not shown
	b.config.Rungs = 1                                // sessions for more batch sizes take time to load and do not affect the cost
	defer func() {
		if cerr := b.close(); errors.Is(cerr, wire.ErrDeviceLost) {
			err = errors.Join(err, cerr)
		}
	}()
	if b.whole, err = b.load(1); err == nil {
		made.Hash = b.whole.Model().Hash
		err = gpu.Choose(made, b, func(cut, of int) { c.Progress("choose", int64(cut), int64(of)) })
	}
	if errors.Is(err, wire.ErrDeviceLost) {
		return err
	}
	if err != nil { // loading the chosen model decides whether it can be served
		made.Target, made.Costs = c.Target, []wire.CutCost{}
		made.Reason = fmt.Sprintf("the cost of cuts cannot be measured: %v", err)
	}
	return nil
}

// modelBench measures cuts of a model for gpu.Choose. The whole model runs in the same
// engine as a single segment, so that nothing but the cut differs.
type modelBench struct {
	env    *ort.Env
	config Config
	whole  *CutModel
	cut    *CutModel
	seqLen int

	// spent is the time spent on loading and running, and budget the limit for it.
	spent, budget time.Duration

	// queries holds the query of zeros for each batch size.
	queries map[int]wire.QueryTensors
}

// spend adds the time since began to spent.
func (b *modelBench) spend(began time.Time) { b.spent += time.Since(began) }

// load opens the model with the given number of segments.
func (b *modelBench) load(target int) (*CutModel, error) {
	defer b.spend(time.Now())
	b.config.Target = target
	return OpenModel(b.env, b.config)
}

func (b *modelBench) Over() bool { return b.spent > b.budget }

func (b *modelBench) Open(target int) (int, error) {
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
	return len(b.cut.Model().Operators), nil
}

// room returns ErrDeviceFull if a cut does not fit on the device alongside the whole model.
func (b *modelBench) room(target int) error {
	free, given, err := b.whole.loaded.device.Free()
	if err != nil {
		return err
	}
	needs := wire.NeedDeviceMemory(b.whole.loaded.memory.Weights, target)
	beside := needs.Weights + needs.Handles
	if beside > free || given > 0 && b.whole.loaded.memory.Sum()+beside > given {
		return fmt.Errorf("%w: %d segments in addition to the whole model need %d MiB more", wire.ErrDeviceFull, target, beside>>20)
	}
	return nil
}

func (b *modelBench) Time(batch int, more func(rounds int) bool) (whole, cut time.Duration, err error) {
	q, ok := b.queries[batch]
	if !ok {
		if q, _, err = zeroQuery(b.whole.Model(), batch, b.seqLen); err != nil {
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
	if _, _, err = TakeTurns(runWhole, runCut, func(n int) bool { return n < turnWarmups }); err != nil {
		return 0, 0, err
	}
	a, c, err := TakeTurns(runWhole, runCut, more)
	return stats.Median(a), stats.Median(c), err
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

// turnWarmups is how often a cut and the whole model run alternately before they are timed.
const turnWarmups = 2

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

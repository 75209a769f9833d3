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
	b := &modelBench{env: env, config: c, progress: c.Progress, seqLen: made.SeqLen, queries: map[int]worker.Query{}}
	if b.progress == nil {
		b.progress = func(string, int64, int64) {}
	}
	b.config.Progress = func(string, int64, int64) {} // of each model that is tried
	made.Target = c.Target
	defer func() {
		if cerr := b.close(); errors.Is(cerr, wire.ErrDeviceLost) {
			err = errors.Join(err, cerr)
		}
	}()
	err = b.choose(made, spec)
	if errors.Is(err, wire.ErrDeviceLost) {
		return nil, err
	}
	if err != nil { // whether the model can be served at all, loading it will tell
		made.Target, made.Costs = c.Target, []wire.CutCost{}
		made.Reason = fmt.Sprintf("what cuts cost cannot be measured: %v", err)
	}
	return made, nil
}

// modelBench measures cuts of a model beside the whole of it, which is the same
// engine with one segment: what differs is the cut and nothing else.
type modelBench struct {
	env      *ort.Env
	config   Config
	whole    *CutModel
	cut      *CutModel
	seqLen   int
	spent    time.Duration        // on loading and running
	queries  map[int]worker.Query // by batch, of zeros
	progress worker.ProgressFunc
}

// choose opens the whole model, and then one cut after the other.
func (b *modelBench) choose(made *wire.CutChoice, spec *wire.LoadSpec) error {
	if err := b.openWhole(); err != nil {
		return err
	}
	made.Hash = b.whole.Model().Hash
	batches := []int{1}
	if made.MaxBatch > 1 {
		batches = append(batches, made.MaxBatch)
	}
	c := choice{
		CutChoice: made, bench: b, batches: batches,
		at:   func(cut, of int) { b.progress("choose", int64(cut), int64(of)) },
		over: func() bool { return b.spent > time.Duration(spec.Choose.BudgetNanos) },
	}
	return c.run()
}

// spend counts the time since began.
func (b *modelBench) spend(began time.Time) { b.spent += time.Since(began) }

func (b *modelBench) openWhole() (err error) {
	defer b.spend(time.Now())
	b.config.Target = 1
	b.whole, err = OpenModel(b.env, b.config)
	return err
}

func (b *modelBench) open(target int) (int, error) {
	defer b.spend(time.Now())
	if err := b.closeCut(); err != nil {
		return 0, err
	}
	if err := b.room(target); err != nil {
		return 0, err
	}
	b.config.Target = target
	var err error
	if b.cut, err = OpenModel(b.env, b.config); err != nil {
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
		return fmt.Errorf("%w: %d segments beside the whole take %d MiB more", wire.ErrDeviceFull, target, beside>>20)
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
	return m.device.fault(m.run.settle())
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

package conformance

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
)

// checker runs models whole and cut.
type checker struct {
	env   *ort.Env
	cache string
	// plain is called when ONNX Runtime has run a model correctly: what
	// crashes from here on is our fault.
	plain func()
}

// cutRuns is how often the cut model runs each set: the first run learns the
// shapes, the second uses a memory plan, the third uses its frame again.
const cutRuns = 3

// coarseness is how many operators a segment of the second, coarser cut holds.
const coarseness = 3

// errPlain is returned when ONNX Runtime itself does not run a model correctly.
var errPlain = errors.New("ONNX Runtime does not run it correctly")

func (c *checker) check(m model) Result {
	r := Result{Model: m.Name, Outcome: Equal}
	err := c.compare(m, &r)
	switch {
	case errors.Is(err, errPlain) || errors.Is(err, errInput):
		r.Outcome = Skipped
	case err != nil:
		r.Outcome = Failed
	}
	if err != nil {
		r.Reason = err.Error()
	}
	return r
}

func (c *checker) compare(m model, r *Result) error {
	whole, err := c.env.NewSessionFromFile(m.Path, ort.SessionOptions{Optimization: ort.All, LogLevel: ort.LogFatal})
	if err != nil {
		return fmt.Errorf("%w: %w", errPlain, err)
	}
	defer whole.Close()
	sets, err := c.sets(m, whole)
	if err != nil {
		return err
	}
	var wants [][]value
	for _, s := range sets {
		want, near, err := c.runPlain(whole, s)
		if err != nil {
			return err
		}
		wants = append(wants, want)
		r.Close = r.Close || near
		r.Checked = s.outputs != nil
	}
	c.plain()
	if r.Operators, err = c.compareCut(m, 0, sets, wants, r.Close); err != nil || r.Operators <= 2 {
		return err
	}
	target := max(2, r.Operators/coarseness)
	if _, err = c.compareCut(m, target, sets, wants, r.Close); err != nil {
		return fmt.Errorf("cut into %d segments: %w", target, err)
	}
	return nil
}

// compareCut runs the model cut into target segments and returns their number.
func (c *checker) compareCut(m model, target int, sets []set, wants [][]value, close bool) (int, error) {
	cut, err := segments.OpenModel(c.env, segments.Config{
		Path:     m.Path,
		CacheDir: filepath.Join(c.cache, "optimized"),
		Target:   target,
		Limits:   models.DefaultLimits(),
	})
	if err != nil {
		return 0, err
	}
	defer cut.Close()
	for run := range cutRuns {
		for i, s := range sets {
			if err := c.runCut(cut, s, wants[i], close); err != nil {
				return 0, fmt.Errorf("run %d: %w", run, err)
			}
		}
	}
	return len(cut.Model().Operators), nil
}

// sets returns the inputs to run the model with. Where none come with it, they
// are made up.
func (c *checker) sets(m model, whole *ort.Session) ([]set, error) {
	var sets []set
	for _, dir := range m.Sets {
		s, err := readSet(dir, whole.Inputs(), whole.Outputs())
		if err != nil {
			return nil, err
		}
		sets = append(sets, s)
	}
	switch {
	case len(sets) > 0:
		return sets, nil
	case m.Output != "" && len(whole.Inputs()) == 1 && len(whole.Outputs()) == 1:
		in, err := ramp(whole.Inputs()[0])
		if err != nil {
			return nil, err
		}
		out, err := readValue(m.Output, whole.Outputs()[0].Type)
		return []set{{[]value{in}, []value{out}}}, err
	}
	return madeUp(whole.Inputs())
}

func madeUp(inputs []ort.Info) ([]set, error) {
	random := rand.New(rand.NewPCG(sampleSeed, 0))
	var sets []set
	for _, open := range []int64{1, 3} {
		var s set
		for _, info := range inputs {
			v, err := sample(info, open, random)
			if err != nil {
				return nil, err
			}
			s.inputs = append(s.inputs, v)
		}
		sets = append(sets, s)
	}
	return sets, nil
}

// runPlain runs the whole model twice. It reports whether the two runs differ
// within the tolerance.
func (c *checker) runPlain(whole *ort.Session, s set) (want []value, close bool, err error) {
	inputs, err := c.values(s.inputs)
	defer closeAll(inputs)
	if err != nil {
		return nil, false, err
	}
	var runs [2][]value
	for i := range runs {
		outputs, err := whole.Run(nil, inputs, nil)
		if err != nil {
			return nil, false, fmt.Errorf("%w: %w", errPlain, err)
		}
		runs[i], err = fromAll(outputs)
		closeAll(outputs)
		if err != nil {
			return nil, false, err
		}
	}
	if s.outputs != nil {
		if err := sameAll(runs[0], s.outputs, near); err != nil {
			return nil, false, fmt.Errorf("%w: %w", errPlain, err)
		}
	}
	if err := sameAll(runs[1], runs[0], near); err != nil {
		return nil, false, fmt.Errorf("%w: two runs differ: %w", errPlain, err)
	}
	return runs[0], sameAll(runs[1], runs[0], exact) != nil, nil
}

func (c *checker) values(list []value) ([]*ort.Value, error) {
	var values []*ort.Value
	for _, v := range list {
		made, err := v.toRuntime(c.env)
		if err != nil {
			return values, fmt.Errorf("%w: %w", errInput, err)
		}
		values = append(values, made)
	}
	return values, nil
}

// runCut runs the cut model one operator at a time.
func (c *checker) runCut(cut *segments.CutModel, s set, want []value, close bool) error {
	const batch = 1
	inputs, err := c.values(s.inputs)
	defer closeAll(inputs)
	if err != nil {
		return err
	}
	if err := cut.StartValues(batch, inputs); err != nil {
		return err
	}
	defer cut.Release(batch)
	for op := range cut.Model().Operators {
		if _, err := cut.Run(batch, op, op+1, nil); err != nil {
			return err
		}
	}
	lent, err := cut.Values(batch)
	if err != nil {
		return err
	}
	got, err := fromAll(lent)
	if err != nil {
		return err
	}
	if close {
		return sameAll(got, want, near)
	}
	return sameAll(got, want, exact)
}

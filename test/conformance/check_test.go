package conformance

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments"
)

// checker runs models whole and cut.
type checker struct {
	env   *ort.Env
	cache string
	plain func() // is called when ONNX Runtime has run a model correctly
}

const (
	// cutRuns is how often the cut model runs each set: the first run learns the
	// shapes, the second uses a memory plan, the third uses its frame again.
	cutRuns = 3

	// coarseness is how many operators a segment of the second, coarser cut holds.
	coarseness = 3
)

// errPlain is returned when ONNX Runtime itself does not run a model correctly.
var errPlain = errors.New("ONNX Runtime does not run it correctly")

func (c *checker) check(m model) result {
	r := result{Outcome: equal}
	if err := c.compare(m, &r); err != nil {
		r.Outcome, r.Reason = failed, err.Error()
		if errors.Is(err, errPlain) || errors.Is(err, errInput) {
			r.Outcome = skipped
		}
	}
	return r
}

func (c *checker) compare(m model, r *result) error {
	whole, err := c.env.NewSessionFromFile(m.Path, ort.SessionOptions{Optimize: true})
	if err != nil {
		return fmt.Errorf("%w: %w", errPlain, err)
	}
	defer whole.Close()
	sets, err := readSets(m, whole)
	if err != nil {
		return err
	}
	for i := range sets {
		s := &sets[i]
		r.Checked = s.outputs != nil
		near, err := c.runPlain(whole, s)
		if err != nil {
			return err
		}
		r.Close = r.Close || near
	}
	c.plain()
	if r.Operators, err = c.compareCut(m, 0, sets, r.Close); err != nil || r.Operators <= 2 {
		return err
	}
	target := max(2, r.Operators/coarseness)
	if _, err = c.compareCut(m, target, sets, r.Close); err != nil {
		return fmt.Errorf("cut into %d segments: %w", target, err)
	}
	return nil
}

// runPlain runs the whole model twice, and keeps the outputs in the set. It reports
// whether the two runs differ within the tolerance.
func (c *checker) runPlain(whole *ort.Session, s *set) (close bool, err error) {
	inputs, err := toRuntime(c.env, s.inputs)
	defer closeAll(inputs)
	if err != nil {
		return false, err
	}
	var runs [2][]value
	for i := range runs {
		outputs, err := whole.Run(inputs, nil)
		if err != nil {
			return false, fmt.Errorf("%w: %w", errPlain, err)
		}
		runs[i], err = fromRuntime(outputs)
		closeAll(outputs)
		if err != nil {
			return false, err
		}
	}
	if s.outputs != nil {
		if err := sameAll(runs[0], s.outputs, near); err != nil {
			return false, fmt.Errorf("%w: %w", errPlain, err)
		}
	}
	if err := sameAll(runs[1], runs[0], near); err != nil {
		return false, fmt.Errorf("%w: two runs differ: %w", errPlain, err)
	}
	s.outputs = runs[0]
	return sameAll(runs[1], runs[0], exact) != nil, nil
}

// compareCut runs the model cut into target segments, 0 for one at every node, and
// returns their number.
func (c *checker) compareCut(m model, target int, sets []set, close bool) (int, error) {
	cut, err := segments.OpenModel(c.env, segments.Config{
		Path: m.Path, CacheDir: filepath.Join(c.cache, "optimized"), Target: target,
	})
	if err != nil {
		return 0, err
	}
	defer cut.Close()
	tolerated := exact
	if close {
		tolerated = near
	}
	for run := range cutRuns {
		for _, s := range sets {
			got, err := c.runCut(cut, s)
			if err == nil {
				err = sameAll(got, s.outputs, tolerated)
			}
			if err != nil {
				return 0, fmt.Errorf("run %d: %w", run, err)
			}
		}
	}
	return len(cut.Model().Operators), nil
}

// runCut runs the cut model one operator at a time.
func (c *checker) runCut(cut *segments.CutModel, s set) ([]value, error) {
	const batch = 1
	inputs, err := toRuntime(c.env, s.inputs)
	defer closeAll(inputs)
	if err != nil {
		return nil, err
	}
	if err := cut.StartValues(batch, inputs); err != nil {
		return nil, err
	}
	defer cut.Release(batch)
	for op := range cut.Model().Operators {
		if _, err := cut.Run(batch, op, op+1, nil); err != nil {
			return nil, err
		}
	}
	lent, err := cut.Values(batch)
	if err != nil {
		return nil, err
	}
	return fromRuntime(lent)
}

// tolerance is how far floating-point numbers may lie apart.
type tolerance struct{ absolute, relative float64 }

var (
	exact = tolerance{}
	near  = tolerance{absolute: 2e-4, relative: 1e-3}
	// nearHalf is for types of two bytes, whose steps are that large.
	nearHalf = tolerance{absolute: 2e-3, relative: 1e-2}
)

// sameAll returns an error that says where got differs from want.
func sameAll(got, want []value, t tolerance) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d values, expected %d", len(got), len(want))
	}
	for i := range got {
		if err := same(got[i], want[i], t); err != nil {
			return fmt.Errorf("output %d: %w", i, err)
		}
	}
	return nil
}

func same(got, want value, t tolerance) error {
	switch {
	case got.kind != want.kind:
		return fmt.Errorf("a value of kind %d, expected kind %d", got.kind, want.kind)
	case got.kind == models.KindSequence:
		return sameAll(got.items, want.items, t)
	case got.elem != want.elem || !slices.Equal(got.dims, want.dims):
		return fmt.Errorf("%s%v, expected %s%v", got.elem, got.dims, want.elem, want.dims)
	case !slices.EqualFunc(got.strings, want.strings, bytes.Equal):
		return fmt.Errorf("strings %q, expected %q", got.strings, want.strings)
	case bytes.Equal(got.data, want.data):
		return nil
	case len(got.data) != len(want.data) || t == exact || number(got.elem) == nil:
		return fmt.Errorf("%s%v differs", got.elem, got.dims)
	}
	size := elementBytes(got.elem)
	if size == 2 {
		t = nearHalf
	}
	read := number(got.elem)
	for at := 0; at < len(want.data); at += size {
		if g, w := read(got.data[at:]), read(want.data[at:]); !t.allows(g, w) {
			return fmt.Errorf("element %d is %v, expected %v", at/size, g, w)
		}
	}
	return nil
}

func (t tolerance) allows(got, want float64) bool {
	if got == want || math.IsNaN(got) && math.IsNaN(want) {
		return true
	}
	return !math.IsInf(got, 0) && !math.IsInf(want, 0) && math.Abs(got-want) <= t.absolute+t.relative*math.Abs(want)
}

func TestSame(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	floats := func(values ...float32) value {
		v := value{kind: models.KindTensor, elem: models.Float32, dims: []int64{int64(len(values))}}
		for _, f := range values {
			v.data = little.AppendUint32(v.data, math.Float32bits(f))
		}
		return v
	}
	half := func(bits uint16) value {
		return value{kind: models.KindTensor, elem: models.Float16, dims: []int64{1}, data: little.AppendUint16(nil, bits)}
	}
	text := func(s string) value {
		return value{kind: models.KindTensor, elem: models.String, dims: []int64{1}, strings: [][]byte{[]byte(s)}}
	}
	for name, test := range map[string]struct {
		a, b        value
		exact, near bool
	}{
		"equal":                 {floats(1, nan), floats(1, nan), true, true},
		"near":                  {floats(1), floats(1.0005), false, true},
		"near zero":             {floats(0), floats(1e-5), false, true},
		"far":                   {floats(1), floats(1.1), false, false},
		"near halves":           {half(0x3c00), half(0x3c02), false, true},
		"far halves":            {half(0x3c00), half(0xbc00), false, false},
		"halves near zero":      {half(0x0001), half(0x8001), false, true},
		"infinite halves":       {half(0x7c00), half(0x7bff), false, false},
		"NaN and number":        {floats(nan), floats(1), false, false},
		"infinities":            {floats(inf), floats(-inf), false, false},
		"a number for infinity": {floats(5), floats(inf), false, false},
		"another shape":         {floats(1), floats(1, 1), false, false},
		"strings":               {text("a"), text("a"), true, true},
		"other strings":         {text("a"), text("b"), false, false},
		"another kind":          {floats(1), value{kind: models.KindSequence}, false, false},
		"sequences":             {value{kind: models.KindSequence, items: []value{floats(1)}}, value{kind: models.KindSequence, items: []value{floats(1.0005)}}, false, true},
		"shorter ones":          {value{kind: models.KindSequence}, value{kind: models.KindSequence, items: []value{floats(1)}}, false, false},
		"empty optionals":       {value{}, value{}, true, true},
	} {
		if got := same(test.a, test.b, exact) == nil; got != test.exact {
			t.Errorf("%s: exactly the same: %t", name, got)
		}
		if got := same(test.a, test.b, near) == nil; got != test.near {
			t.Errorf("%s: nearly the same: %t", name, got)
		}
	}
}

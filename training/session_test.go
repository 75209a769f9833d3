package training

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/internal/stats"
)

func testSubjects() []subject {
	return []subject{
		{Model: Model{Name: "bert", Hash: "b", Operators: 12}, Sizes: []int{1, 4}, SeqLens: []int{8, 64}},
		{Model: Model{Name: "resnet", Hash: "r", Operators: 18}, Sizes: []int{1, 2, 4}},
		{Model: Model{Name: "vgg", Hash: "v", Operators: 20}, Sizes: []int{1}},
	}
}

func testOptions(groups int) sessionOptions {
	o := DefaultSessionOptions(groups)
	o.Subjects = testSubjects()
	o.Spans = 3
	return o
}

const testInputs = 2*2 + 3 + 1 // of testSubjects

func TestSession(t *testing.T) {
	d := newDevice(t, testOptions(100), nil, nil)
	if diff := cmp.Diff(Progress{Total: 100 + 2*testInputs}, d.s.Progress()); diff != "" {
		t.Errorf("at the start: %s", diff)
	}
	d.run(maxTestSteps)
	want := map[string]int{
		"warm-up":   testInputs,
		"group":     3 * (100 + testInputs),
		"operators": 3 * testInputs,
		"reference": 3 * 3 * 3, // three groups after 50 and 100 measurements, and at the end
	}
	if diff := cmp.Diff(want, d.kinds); diff != "" {
		t.Errorf("steps:\n%s", diff)
	}
	p := d.s.Progress()
	if p.Done != p.Total || p.Total != 100+2*testInputs || p.Left != 0 || p.Skipped != 0 {
		t.Errorf("at the end: %+v", p)
	}
	data := d.dataset()
	if err := data.Check(); err != nil {
		t.Error(err)
	}
	if len(data.Rows) != 100+testInputs {
		t.Errorf("%d rows", len(data.Rows))
	}
	for _, r := range data.Rows {
		sum := 0.0
		for _, s := range r.Group.Spans {
			if s.Batch != 0 {
				t.Fatalf("a row names a batch: %+v", r)
			}
			sum += float64(d.solo(s)) / 1e3
		}
		if r.Repeats != 3 || r.Std != 0 || math.Abs(r.Median-sum) > 1e-6 || math.Abs(r.Mean-sum) > 1e-6 {
			t.Fatalf("row %+v, want %v", r, sum)
		}
	}
	if drift := d.s.Progress().Drift; len(drift.Checks) != 3 || drift.Exceeded || drift.Worst.Percent != 0 {
		t.Errorf("drift: %+v", drift)
	}
	checkOperatorTimes(t, d)
}

func checkOperatorTimes(t *testing.T, d *device) {
	t.Helper()
	for i, s := range d.subjects {
		if len(d.times[s.Model.Name]) != len(s.inputs(i)) {
			t.Errorf("%s: %d operator times", s.Model.Name, len(d.times[s.Model.Name]))
		}
		for _, o := range d.times[s.Model.Name] {
			if len(o.Micros) != s.Model.Operators || o.Repeats != 3 || math.Abs(o.Micros[3]-10*float64(o.Size*(o.SeqLen+1))) > 1e-6 {
				t.Errorf("%s: %+v", s.Model.Name, o)
			}
		}
	}
}

// Groups are run until their median is known well enough.
func TestRepeatsFollowTheNoise(t *testing.T) {
	repeats := func(noise float64) float64 {
		o := testOptions(60)
		o.References, o.MinRepeats, o.MaxRepeats = 0, 4, 12
		d := newDevice(t, o, nil, nil)
		random := rand.New(rand.NewPCG(1, 2))
		d.noise = func() float64 { return math.Exp(noise * random.NormFloat64()) }
		d.run(maxTestSteps)
		sum := 0
		for _, r := range d.rows {
			if r.Repeats < 4 || r.Repeats > 12 || r.Repeats > 4 && noise == 0 {
				t.Fatalf("%d runs at noise %v", r.Repeats, noise)
			}
			sum += r.Repeats
		}
		return float64(sum) / float64(len(d.rows))
	}
	quiet, some, loud := repeats(0), repeats(0.08), repeats(1)
	if quiet != 4 || some < 4.5 || some > 11 || loud < 11 {
		t.Errorf("%v, %v, %v runs", quiet, some, loud)
	}
}

func TestRelativeErrorIsThatOfTheMedian(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const runs, trials = 25, 2000
	var medians []float64
	mean := 0.0
	for range trials {
		values := make([]float64, runs)
		for i := range values {
			values[i] = 100 + 10*random.NormFloat64()
		}
		medians = append(medians, stats.Median(values))
		mean += relativeError(values) / trials
	}
	if spread := newRow(group(), medians).Std / 100; math.Abs(mean/spread-1) > 0.1 {
		t.Errorf("estimated %v, it is %v", mean, spread)
	}
}

func TestProgressTellsTheTimeLeft(t *testing.T) {
	o := testOptions(400)
	d := newDevice(t, o, nil, nil)
	if left := d.s.Progress().Left; left != 0 {
		t.Errorf("%v are left before anything was run", left)
	}
	for d.s.Progress().Done < 150 {
		d.run(1)
	}
	middle := d.s.Progress()
	d.run(maxTestSteps)
	rest := d.s.Progress().Spent - middle.Spent
	if ratio := float64(middle.Left) / float64(rest); ratio < 0.8 || ratio > 1.25 {
		t.Errorf("%v were told, %v it took", middle.Left, rest)
	}
}

// An interrupted session goes on, measures nothing twice and ends with what an
// uninterrupted one has.
func TestSessionGoesOn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := testOptions(rapid.IntRange(0, 60).Draw(t, "groups"))
		o.Seed = rapid.Uint64().Draw(t, "seed")
		whole := newDevice(t, o, nil, nil)
		whole.run(maxTestSteps)

		var stored *Dataset
		var operators map[string][]OperatorTimes
		for range rapid.IntRange(1, 4).Draw(t, "interruptions") {
			d := newDevice(t, o, stored, operators)
			d.resume(stored, operators)
			d.run(rapid.IntRange(0, 200).Draw(t, "steps"))
			stored, operators = d.dataset(), d.times
		}
		last := newDevice(t, o, stored, operators)
		last.resume(stored, operators)
		last.run(maxTestSteps)

		count := func(rows []Row) counts[string] {
			c := counts[string]{}
			for _, r := range rows {
				c[groupKey(r.Group)]++
			}
			return c
		}
		if diff := cmp.Diff(count(whole.rows), count(last.rows)); diff != "" {
			t.Fatalf("rows:\n%s", diff)
		}
		if diff := cmp.Diff(whole.times, last.times); diff != "" {
			t.Fatalf("operator times:\n%s", diff)
		}
		if p := last.s.Progress(); p.Done != p.Total {
			t.Fatalf("%+v", p)
		}
	})
}

// What is stored of other models, or of another file of a model, is no help
// and no harm.
func TestForeignRowsAreLeftAlone(t *testing.T) {
	o := testOptions(30)
	whole := newDevice(t, o, nil, nil)
	whole.run(maxTestSteps)
	other := whole.dataset()
	for i := range other.Models {
		other.Models[i].Hash += "other"
	}
	d := newDevice(t, o, other, map[string][]OperatorTimes{"vgg": {{Size: 1, Micros: make([]float64, 3)}}})
	if p := d.s.Progress(); p.Done != 0 {
		t.Errorf("%+v", p)
	}
}

func TestModelThatFails(t *testing.T) {
	o := testOptions(200)
	d := newDevice(t, o, nil, nil)
	bad := input{model: 1, size: 4}
	d.broken[bad] = true
	d.run(maxTestSteps)
	p := d.s.Progress()
	if p.Done != p.Total || p.Skipped < 3 || p.Skipped > p.Total/2 {
		t.Errorf("progress %+v", p)
	}
	for _, r := range d.rows {
		for _, s := range r.Group.Spans {
			if inputOf(s) == bad {
				t.Fatalf("it was measured: %+v", r)
			}
		}
	}
	skips := d.s.Progress().Skips
	if len(skips) != 1 || skips[0].Model != "resnet" || skips[0].Size != 4 || !errors.Is(skips[0].Err, errBroken) {
		t.Errorf("skips %+v", skips)
	}
	if d.kinds["failure"] != maxAttempts {
		t.Errorf("tried %d times", d.kinds["failure"])
	}
	if operators := testInputs - 1; len(d.rows)+operators+p.Skipped != p.Total {
		t.Errorf("%d rows, %+v", len(d.rows), p)
	}
}

// Whatever fails and whenever: a session ends, and what it measured is sound.
func TestAnythingMayFail(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := testOptions(rapid.IntRange(0, 80).Draw(t, "groups"))
		o.References = rapid.IntRange(0, 5).Draw(t, "references")
		o.ReferenceEvery = rapid.IntRange(1, 40).Draw(t, "every")
		o.MinRepeats = rapid.IntRange(1, 4).Draw(t, "least")
		o.MaxRepeats = o.MinRepeats + rapid.IntRange(0, 4).Draw(t, "more")
		d := newDevice(t, o, nil, nil)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rate := rapid.SampledFrom([]float64{0, 0.01, 0.2, 1}).Draw(t, "failures")
		d.flaky = func() bool { return random.Float64() < rate }
		d.noise = func() float64 { return math.Exp(0.2 * random.NormFloat64()) }
		for i := range o.Subjects {
			for _, in := range o.Subjects[i].inputs(i) {
				d.broken[in] = random.IntN(4) == 0
			}
		}
		d.run(maxTestSteps)
		if _, more := d.s.Next(); more {
			t.Fatal("it goes on")
		}
		p := d.s.Progress()
		if p.Done != p.Total || p.Left != 0 {
			t.Fatalf("progress %+v", p)
		}
		data := d.dataset()
		if err := data.Check(); err != nil {
			t.Fatal(err)
		}
		measured := len(data.Rows)
		for _, times := range d.times {
			measured += len(times)
		}
		// A reference that cannot be run again is told of, but nothing is left out for it.
		skips := len(d.s.Progress().Skips)
		if measured != p.Total-p.Skipped || p.Skipped > 0 && skips == 0 || p.Skipped == 0 && skips > 0 && o.References == 0 {
			t.Fatalf("%d measured, %d skips, %+v", measured, len(d.s.Progress().Skips), p)
		}
		for _, r := range data.Rows {
			if r.Repeats < o.MinRepeats || r.Repeats > o.MaxRepeats {
				t.Fatalf("%d runs", r.Repeats)
			}
		}
	})
}

// A worker that was restarted pays for its first runs again.
func TestCold(t *testing.T) {
	d := newDevice(t, testOptions(100), nil, nil)
	d.run(150)
	before := d.kinds["warm-up"]
	d.s.Cold(1)
	for in := range d.warm {
		if in.model == 1 {
			delete(d.warm, in)
		}
	}
	d.run(maxTestSteps) // which checks that warm-ups come first
	if got := d.kinds["warm-up"] - before; got != 3 {
		t.Errorf("%d warm-ups of three inputs", got)
	}
}

func TestAnswersOutOfTurn(t *testing.T) {
	d := newDevice(t, testOptions(5), nil, nil)
	if _, ok := d.s.Took(time.Second, 0, time.Second); ok {
		t.Error("a row of nothing")
	}
	d.s.Failed(0, errBroken, time.Second)
	d.s.Again(time.Second)
	if p := d.s.Progress(); p.Spent != 0 || len(d.s.Progress().Skips) != 0 {
		t.Errorf("answers to no step counted: %+v", p)
	}
	for {
		step, _ := d.s.Next()
		if step.Operators {
			break
		}
		d.run(1)
	}
	if _, _, ok := d.s.TookOperators([]time.Duration{1}, 1); ok {
		t.Error("one operator time of a model of twelve was taken")
	}
	if step, _ := d.s.Next(); !step.Operators {
		t.Errorf("the step did not come again but %+v", step)
	}
}

func TestDrift(t *testing.T) {
	o := testOptions(200)
	d := newDevice(t, o, nil, nil)
	for d.s.Progress().Done < 120 {
		d.run(1)
	}
	if drift := d.s.Progress().Drift; drift.Exceeded || len(drift.Checks) != 2 {
		t.Errorf("before: %+v", drift)
	}
	d.slower = 1.25
	d.run(maxTestSteps)
	drift := d.s.Progress().Drift
	if !drift.Exceeded || math.Abs(drift.Worst.Percent-25) > 0.01 || drift.Worst.After != 150 {
		t.Errorf("after: %+v", drift)
	}
	want := []int{50, 100, 150, 200, 200 + 2*testInputs}
	for i, c := range drift.Checks {
		if c.After != want[i] || (math.Abs(c.Percent) > 1) != (i >= 2) {
			t.Errorf("check %d: %+v", i, c)
		}
	}
	if len(drift.Checks) != len(want) {
		t.Errorf("%d checks", len(drift.Checks))
	}
}

// What is stored is compared first when a session goes on: the device may have
// changed since.
func TestDriftSinceTheInterruption(t *testing.T) {
	o := testOptions(200)
	d := newDevice(t, o, nil, nil)
	for d.s.Progress().Done < 120 {
		d.run(1)
	}
	again := newDevice(t, o, d.dataset(), d.times)
	again.slower = 0.5
	for len(again.s.Progress().Drift.Checks) == 0 {
		again.run(1)
	}
	if drift := again.s.Progress().Drift; !drift.Exceeded || math.Abs(drift.Worst.Percent+50) > 0.01 || drift.Worst.After != 120 {
		t.Errorf("%+v", drift)
	}
	if len(again.rows) != 0 {
		t.Errorf("%d rows were measured before", len(again.rows))
	}
}

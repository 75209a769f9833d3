package gpucheck

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// good is a report in which every figure is just within its limit.
func good() *Report {
	return &Report{
		Device: "NVIDIA H100 80GB HBM3", Started: time.Unix(0, 0).UTC(), Version: "1", Commit: "abc", Seed: 1,
		PreparingSeconds: 20, Seconds: 459,
		Steps: []StepResult{{Name: "facts", Title: "What the machine has", Status: Done, Seconds: 2, Budget: 10},
			{Name: "mps", Title: "What MPS prints and does", Status: OutOfTime, Error: "its 16s were spent", Seconds: 16, Budget: 16}},
		Outputs: []OutputRow{{Model: "resnet50", Precision: "fp32", Tolerance: 1e-3, Within: true}},
		Cuts:    []CutRow{{Model: "resnet50", Batch: 1, Wanted: 16, Segments: 16, Rounds: 40, WholeMS: 2, CutMS: 2.1, DeviceMS: 2, Ratio: 1.05}},
		Choices: []Choice{{Model: "resnet50", Wanted: 16, Segments: 16, Batches: 2, Worst: 1.05, Within: true},
			{Model: "bert", Segments: 58, Batches: 2, Worst: 0.99, Within: true}, {Model: "vgg16", Segments: 30, Batches: 2, Worst: 1, Within: true}},
		Pairs: []PairRow{{A: "resnet50", B: "bert", Batch: 1, Rounds: 9, AloneAMS: 2, AloneBMS: 3, SequentialMS: 5.5, TogetherMS: 5, Gain: 1.1},
			{A: "resnet50", B: "vgg16", Batch: 8, MPS: true, Rounds: 9, AloneAMS: 2, AloneBMS: 3, SequentialMS: 6.5, TogetherMS: 5, Gain: 1.3}},
		Repeat:  &Repeat{Group: "resnet50 whole", Batch: 1, MPS: true, Runs: repeats, MeanMS: 2, MedianMS: 2, StdMS: 0.12, Spread: 0.06},
		Profile: &Profile{MeasureSeconds: 180, Measured: 700, Rows: 500, TrainSeconds: 9, MAPE: 6},
		Load:    &LoadSetting{Rate: 500, Offered: 1, Turn: 5, Rounds: 3},
		Policies: []PolicyResult{{Policy: "fcfs", Turns: 3, Requests: 100, Violations: .3, Goodput: 90}, {Policy: "edf", Turns: 3, Requests: 100, Violations: .2, Goodput: 95},
			{Policy: "overlap", Turns: 3, Requests: 100, Violations: .1, Goodput: 99}},
	}
}

// verdictOf returns the answers of a report, by what they are of.
func verdictsOf(r *Report) []Verdict {
	r.judge()
	return r.Verdicts
}

func TestVerdicts(t *testing.T) {
	for _, v := range verdictsOf(&Report{}) {
		if v.Answer != NotMeasured || v.Number != nil || v.What == "" || v.Want == "" || v.Unit == "" {
			t.Errorf("of nothing: %+v", v)
		}
	}
	for _, v := range verdictsOf(good()) {
		if v.Answer != Pass || v.Got == "" || v.Number == nil || v.Limit == nil {
			t.Errorf("%+v", v)
		}
	}
	for i, c := range []struct {
		spoil         func(*Report)
		number, limit float64
	}{
		{func(r *Report) { r.Outputs = append(r.Outputs, OutputRow{}) }, 1, 2},
		{func(r *Report) { r.Choices[1].Worst = 1.0625 }, 6.25, 5},
		{func(r *Report) { r.Pairs[1].Gain = 1.29 }, 1.29, 1.3},
		{func(r *Report) { r.Repeat.Spread = 0.0625 }, 6.25, 6},
		{func(r *Report) { r.Profile.MAPE = 6.1 }, 6.1, 6},
		{func(r *Report) { r.Profile.MeasureSeconds = 181 }, 181, 180},
		{func(r *Report) { r.Policies[2].Violations = .2 }, 20, 20},
		{func(r *Report) { r.Policies[2].Goodput = 95 }, 95, 95},
		{func(r *Report) { r.PreparingSeconds = 21 }, 480, 480},
	} {
		r := good()
		c.spoil(r)
		for j, v := range verdictsOf(r) {
			if (v.Answer == Miss) != (i == j) {
				t.Errorf("spoilt %d: %+v", i, v)
			}
			if i == j && (*v.Number != c.number || *v.Limit != c.limit) {
				t.Errorf("%s: %g with the limit %g, want %g and %g", v.What, *v.Number, *v.Limit, c.number, c.limit)
			}
		}
	}
}

// TestVerdictsOfHalf: what was measured in part is neither a pass nor a miss, and
// the words say why.
func TestVerdictsOfHalf(t *testing.T) {
	for why, spoil := range map[string]func(*Report){
		"2 of 3 services":                    func(r *Report) { r.Choices = r.Choices[:2] },
		"60 of 100 runs":                     func(r *Report) { r.Repeat.Runs = 60 },
		"700 measurements, and no predictor": func(r *Report) { r.Profile.Rows = 0 },
		"":                                   func(r *Report) { r.Policies = r.Policies[1:] },
	} {
		r := good()
		spoil(r)
		found := false
		for _, v := range verdictsOf(r) {
			if v.Answer == NotMeasured {
				found = found || strings.HasPrefix(v.Got, why)
				if v.Number != nil {
					t.Errorf("%+v has a number", v)
				}
			}
		}
		if !found {
			t.Errorf("no verdict says %q: %+v", why, r.Verdicts)
		}
	}
}

// TestGolden holds the page and the text to those in testdata, and the numbers of
// the verdicts in the JSON to what the page says.
func TestGolden(t *testing.T) {
	r := good()
	r.judge()
	dir := t.TempDir()
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{PageName, MarkdownName} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		golden := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(golden, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s is not as in testdata (go test -run TestGolden -update writes it): %v", name, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(dir, JSONName))
	if err != nil {
		t.Fatal(err)
	}
	var saved struct {
		Verdicts []struct {
			Answer        string
			Number, Limit *float64
		}
	}
	if err := json.Unmarshal(data, &saved); err != nil || len(saved.Verdicts) != 9 {
		t.Fatalf("%+v, %v", saved, err)
	}
	for _, v := range saved.Verdicts {
		if v.Answer != Pass || v.Number == nil || v.Limit == nil {
			t.Errorf("saved %+v", v)
		}
	}
}

// TestLimits: the limits of the steps make up the default budget, and with what a
// step that hangs may take, and with closing, all of it stays within what is wanted.
func TestLimits(t *testing.T) {
	var sum time.Duration
	for _, s := range steps {
		sum += s.limit
	}
	if budget := DefaultOptions().Budget; sum != budget {
		t.Errorf("the steps have %v, the budget is %v", sum, budget)
	} else if most := budget + hungGrace + closeGrace; most >= WantWhole {
		t.Errorf("it may take %v", most)
	}
	text, err := os.ReadFile("../../../docs/gpu.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if row := fmt.Sprintf("\n| %s | %.0f s |", s.name, s.limit.Seconds()); !strings.Contains(string(text), row) {
			t.Errorf("docs/gpu.md has no row that begins %q", row)
		}
	}
}

// hanging returns steps of which the second neither ends nor listens until the
// test is over, and notes something before and after.
func hanging(t *testing.T) (list []step, released chan struct{}) {
	released = make(chan struct{})
	var running sync.WaitGroup
	t.Cleanup(running.Wait)
	note := func(name string) func(*check, context.Context) error {
		return func(c *check, _ context.Context) error {
			c.keep(func(r *Report) { r.Outputs = append(r.Outputs, OutputRow{Model: name}) })
			return nil
		}
	}
	return []step{
		{"first", "First", 99 * time.Second, note("first")},
		{"hangs", "Hangs", time.Second, func(c *check, ctx context.Context) error {
			running.Add(1)
			defer running.Done()
			_ = note("hangs")(c, ctx)
			c.Progress("it hangs")
			<-released
			return note("too late")(c, ctx)
		}},
		{"last", "Last", 99 * time.Second, note("last")},
	}, released
}

// TestHang: a step that does not end is left behind, with what it measured, and so
// are those after it.
func TestHang(t *testing.T) {
	c := &check{Options: Options{Out: t.TempDir(), Budget: 10 * time.Second, Progress: func(string) {}}, report: &Report{}, hung: time.Millisecond}
	list, released := hanging(t)
	defer close(released)
	if err := c.runAll(t.Context(), list); err != nil {
		t.Fatal(err)
	}
	var saved Report
	data, err := os.ReadFile(filepath.Join(c.Out, JSONName))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &saved); err != nil || len(saved.Steps) != 3 {
		t.Fatalf("%+v, %v", saved.Steps, err)
	}
	if s := saved.Steps; s[1].Status != OutOfTime || !strings.Contains(s[1].Error, "it hangs") || s[2].Status != Left || !strings.Contains(s[2].Error, "the step before it hangs") {
		t.Errorf("%+v", s)
	}
	if o := saved.Outputs; len(o) != 2 || o[0].Model != "first" || o[1].Model != "hangs" {
		t.Errorf("kept %+v", o)
	}
}

// TestHangWhenInterrupted: who is told to end does not wait for a step that hangs.
func TestHangWhenInterrupted(t *testing.T) {
	c := &check{Options: Options{Out: t.TempDir(), Budget: time.Hour}, report: &Report{}, hung: time.Millisecond}
	ctx, cancel := context.WithCancel(t.Context())
	c.Progress = func(s string) {
		if s == "it hangs" {
			cancel()
		}
	}
	list, released := hanging(t)
	defer close(released)
	if err := c.runAll(ctx, list); err != nil {
		t.Fatal(err)
	}
	if s := c.report.Steps; len(s) != 3 || s[1].Status != OutOfTime || s[2].Status != Left {
		t.Errorf("%+v", s)
	}
}

// TestKeepSaves: what a step finds is on the disk while it runs.
func TestKeepSaves(t *testing.T) {
	c := &check{Options: Options{Out: t.TempDir()}, report: &Report{}}
	saved := func() (r Report) {
		data, err := os.ReadFile(filepath.Join(c.Out, JSONName))
		if err == nil {
			err = json.Unmarshal(data, &r)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	c.keep(func(r *Report) { r.Pairs = append(r.Pairs, PairRow{A: "a", Gain: 2}) })
	if r := saved(); len(r.Pairs) != 1 || r.Verdicts[2].Answer != Pass {
		t.Errorf("saved %+v, %+v", r.Pairs, r.Verdicts)
	}
	c.keep(func(r *Report) { r.Pairs = append(r.Pairs, PairRow{A: "b"}) })
	if r := saved(); len(r.Pairs) != 1 {
		t.Errorf("%d pairs are saved: twice within %v", len(r.Pairs), saveEvery)
	}
	if err := c.ended(StepResult{Name: "pairs", Status: Done}, time.Now()); err != nil || len(saved().Pairs) != 2 {
		t.Errorf("at the end of the step there are %d pairs, %v", len(saved().Pairs), err)
	}
	c.Out = filepath.Join(c.Out, "absent")
	if err := c.ended(StepResult{}, time.Now()); err == nil {
		t.Error("a folder that is not there is no error")
	}
}

// TestCloseAll: what comes last is closed first, and nobody waits for ever.
func TestCloseAll(t *testing.T) {
	c := &check{}
	var order []int
	for i := range 3 {
		c.later(func() error { order = append(order, i); return nil })
	}
	if err := c.closeAll(time.Minute); err != nil || len(order) != 3 || order[0] != 2 || order[2] != 0 {
		t.Errorf("closed %v, %v", order, err)
	}
	if err := c.closeAll(time.Minute); err != nil || len(order) != 3 {
		t.Errorf("closed twice: %v, %v", order, err)
	}
	released := make(chan struct{})
	c.later(func() error { <-released; return nil })
	err := c.closeAll(time.Millisecond)
	close(released)
	if err == nil || !strings.Contains(err.Error(), "nvidia-cuda-mps-server") {
		t.Errorf("got %v", err)
	}
}

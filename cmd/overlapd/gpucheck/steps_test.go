package gpucheck

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/fake"
	"github.com/overlapd/overlapd/segments"
)

// checkOf returns a check whose processes are this binary in a role. No model runs.
func checkOf(t *testing.T, role string) *check {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(roleVariable, role)
	o := Rehearsal()
	o.Command, o.Out, o.Progress = []string{self}, t.TempDir(), func(string) {}
	for i := range o.Services {
		o.Services[i].Path = "/models/" + o.Services[i].Name + ".onnx"
	}
	c := &check{Options: o, report: newReport(&o, time.Now())}
	t.Cleanup(func() {
		if err := c.closeAll(time.Minute); err != nil {
			t.Error(err)
		}
	})
	return c
}

// TestMeasureCuts: every batch, granularity and service is measured, and a choice
// is made of each service.
func TestMeasureCuts(t *testing.T) {
	c := checkOf(t, healthy)
	if err := c.measureCuts(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := len(c.Batches) * len(c.Granularities) * services; len(c.report.Cuts) != want {
		t.Errorf("%d rows, want %d", len(c.report.Cuts), want)
	}
	for _, r := range c.report.Cuts {
		if r.Ratio != r.CutMS/r.WholeMS || r.Rounds == 0 || r.Segments == 0 {
			t.Errorf("%+v", r)
		}
	}
	if len(c.report.Choices) != services {
		t.Fatalf("%+v", c.report.Choices)
	}
	for _, choice := range c.report.Choices { // at every node it costs 10 %, in four operators 2 %
		if choice.Wanted != 4 || !choice.Within || choice.Batches != len(c.Batches) {
			t.Errorf("%+v", choice)
		}
		if got := c.cut(choice.Model); got != 4 {
			t.Errorf("%s is cut into %d from then on", choice.Model, got)
		}
	}
	if v := c.report.judgeCuts(); v.Answer != Pass {
		t.Errorf("%+v", v)
	}
}

// TestProbesThatFail: each step tells of all that failed once, and keeps nothing of it.
func TestProbesThatFail(t *testing.T) {
	c := checkOf(t, noProbes)
	for name, step := range map[string]func(context.Context) error{
		"outputs": c.compareOutputs, "cuts": c.measureCuts, "sessions": c.measureSessions, "variants": c.measureVariants,
	} {
		err := step(t.Context())
		if err == nil || !strings.Contains(err.Error(), "cannot be loaded") {
			t.Errorf("%s: %v", name, err)
		}
	}
	r := c.report
	if len(r.Cuts)+len(r.Sessions)+len(r.Variants)+len(r.Choices) > 0 || len(r.Outputs) != len(c.Models) {
		t.Errorf("kept %v, %v, %v, %v", r.Cuts, r.Sessions, r.Variants, r.Outputs)
	}
	for _, o := range r.Outputs {
		if o.Within || o.Error == "" {
			t.Errorf("%+v", o)
		}
	}
	if v := r.judgeOutputs(); v.Answer != Miss || *v.Number != 0 {
		t.Errorf("%+v", v)
	}
}

// TestStepsOutOfTime: what was measured before the time was up is kept, and the
// choice is made of it.
func TestStepsOutOfTime(t *testing.T) {
	c := checkOf(t, healthy)
	ctx, cancel := context.WithCancel(t.Context())
	c.Progress = func(string) {
		if len(c.report.Cuts) == 4 {
			cancel()
		}
	}
	if err := c.measureCuts(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if len(c.report.Cuts) != 4 || len(c.report.Choices) != services {
		t.Errorf("%d rows and %d choices", len(c.report.Cuts), len(c.report.Choices))
	}
	for name, step := range map[string]func(context.Context) error{"outputs": c.compareOutputs, "variants": c.measureVariants, "sessions": c.measureSessions} {
		if err := step(ctx); err == nil {
			t.Errorf("%s goes on without time", name)
		}
	}
	if left := timeLeft(t.Context()); left != maxBudget {
		t.Errorf("without a limit there are %v", left)
	}
	past, stop := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer stop()
	if left := timeLeft(past); left != 0 {
		t.Errorf("after the limit there are %v", left)
	}
}

// TestSessionRow: what a segment adds is what the cut model has beyond the whole
// one, by segment.
func TestSessionRow(t *testing.T) {
	whole := cutcost.ProbeResult{LoadMS: 50, RSSBytes: 100 << 20}
	cut := cutcost.ProbeResult{LoadMS: 80, RSSBytes: 140 << 20, Segments: 20}
	r := sessionRow("m", 16, &whole, &cut)
	if r.EachMS != 4 || r.EachBytes != 2<<20 || r.DeviceBytes != 0 || r.TakenBytes != 0 || r.WholeLoadMS != 50 {
		t.Errorf("%+v", r)
	}
	cut.RSSBytes, cut.Device = 80<<20, &segments.DeviceMemory{Weights: 10, Handles: 20, Context: 30, Taken: 25}
	if r = sessionRow("m", 16, &whole, &cut); r.EachBytes != -1<<20 || r.DeviceBytes != 60 || r.TakenBytes != 25 {
		t.Errorf("%+v", r)
	}
	if r = sessionRow("m", 0, &whole, &cutcost.ProbeResult{LoadMS: 8}); r.EachMS != 8 {
		t.Errorf("without a count of segments: %+v", r)
	}
}

// TestAsk: a command that fails is told of with its last words.
func TestAsk(t *testing.T) {
	c := checkOf(t, noTraining)
	var answer struct{ Rows int }
	if err := c.ask(t.Context(), &answer, "train"); !errors.Is(err, ErrDaemon) || !strings.Contains(err.Error(), "overlapd train: ") || !strings.Contains(err.Error(), "too few groups") {
		t.Errorf("got %v", err)
	}
	if err := c.ask(t.Context(), &answer, "nothing"); !errors.Is(err, ErrDaemon) || !strings.Contains(err.Error(), "printed no result") {
		t.Errorf("got %v", err)
	}
	c.Command = []string{"/absent/overlapd"}
	if err := c.ask(t.Context(), &answer, "train"); !errors.Is(err, ErrDaemon) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

// TestProfileStep: without times alone there is nothing to profile; what was measured
// is kept if training fails; the folder goes away at the end.
func TestProfileStep(t *testing.T) {
	c := checkOf(t, noTraining)
	if err := c.profile(t.Context()); !errors.Is(err, ErrNothing) {
		t.Errorf("without pairs: %v", err)
	}
	if err := c.loadPolicies(t.Context()); !errors.Is(err, ErrNothing) {
		t.Errorf("load without a profile: %v", err)
	}
	c.report.Pairs = withPairs(c.Options).report.Pairs
	if err := c.profile(t.Context()); !errors.Is(err, ErrDaemon) {
		t.Errorf("without training: %v", err)
	}
	if p := c.report.Profile; p == nil || p.Measured != 40 || p.Rows != 0 || c.state == "" {
		t.Fatalf("kept %+v in %q", p, c.state)
	}
	if err := c.closeAll(time.Minute); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(c.state); err == nil {
		t.Error("the folder of what was profiled is left")
	}
}

// TestDaemons: one that does not start is told of with what it logged, and those that
// did are ended.
func TestDaemons(t *testing.T) {
	c := checkOf(t, healthy)
	c.report.Pairs = withPairs(c.Options).report.Pairs
	if err := c.profile(t.Context()); err != nil {
		t.Fatal(err)
	}
	list, err := c.serveAll(t.Context())
	if err != nil || len(list) != len(c.Policies) {
		t.Fatalf("%d daemons, %v", len(list), err)
	}
	for i, d := range list {
		if !strings.HasPrefix(d.url, "http://127.0.0.1:") {
			t.Errorf("%s serves at %q", c.Policies[i], d.url)
		}
		if err := d.stop(); err != nil {
			t.Errorf("%s: %v", c.Policies[i], err)
		}
	}
	t.Setenv(roleVariable, noServing)
	if list, err = c.serveAll(t.Context()); !errors.Is(err, ErrDaemon) || len(list) != 0 || !strings.Contains(err.Error(), "fcfs: ") || !strings.Contains(err.Error(), "no such model") {
		t.Errorf("%d daemons, %v", len(list), err)
	}
	t.Setenv(roleVariable, slow)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err = c.serve(ctx, "config", "edf"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("one that is slow to start: %v", err)
	}
	c.Command = []string{"/absent/overlapd"}
	if _, err = c.serve(t.Context(), "config", "edf"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	c.state = filepath.Join(c.Out, "absent")
	if _, err = c.serveAll(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("without a state file: %v", err)
	}
}

// TestWorkersThatFail: a model that does not load ends the step, and a span that
// cannot be is told of by service.
func TestWorkersThatFail(t *testing.T) {
	o := rehearse(t, healthy)
	o.Progress = func(string) {}
	c := &check{Options: o, report: newReport(&o, time.Now())}
	w, err := c.startWorkers(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if took, err := w.run(t.Context(), part{service: 0, batch: 1}, part{service: 2, batch: 1, end: 1}); err != nil || took <= 0 {
		t.Errorf("%v, %v", took, err)
	}
	if _, err := w.run(t.Context(), part{service: 1, batch: 1, end: 10_000}); err == nil {
		t.Error("a span beyond the last operator ran")
	}
	if _, err := w.run(t.Context(), part{service: 0, batch: 1}, part{service: 0, batch: 1}); err == nil {
		t.Error("two spans of one service ran in one round")
	}
	if _, err := w.run(t.Context(), part{service: 0, batch: 1 << 30}); err == nil || !strings.Contains(err.Error(), "memory for inputs") {
		t.Errorf("inputs of any size are made: %v", err)
	}
	before := len(w.offsets)
	if _, err := w.inputsOf(part{service: 0, batch: 1}); err != nil || len(w.offsets) != before {
		t.Errorf("inputs are made twice: %v", err)
	}
	if err := w.stop(); err != nil {
		t.Error(err)
	}
	c.Services = append([]Model(nil), o.Services...)
	c.Services[1].Path = filepath.Join(t.TempDir(), "absent.onnx")
	if _, err := c.startWorkers(t.Context(), nil); !errors.Is(err, ErrWorker) || !strings.Contains(err.Error(), "absent.onnx") {
		t.Errorf("got %v", err)
	}
	if err := c.pairsUnder(t.Context(), nil, false); !errors.Is(err, ErrWorker) || len(c.report.Pairs) > 0 {
		t.Errorf("pairs: %v, %v", err, c.report.Pairs)
	}
	if err := c.repeatGroup(t.Context()); !errors.Is(err, ErrWorker) || c.report.Repeat != nil {
		t.Errorf("repeat: %v, %+v", err, c.report.Repeat)
	}
}

// TestFactsThatFail: a host whose NVML fails, and a GPU that is not there, are told
// of; what is known of the machine stays.
func TestFactsThatFail(t *testing.T) {
	c := checkOf(t, healthy)
	c.Device, c.GPU = cutcost.CUDA, "7"
	c.nvml = func() (*cuda.Host, error) { return nil, cuda.ErrNoDriver }
	if err := c.addGPU(&Facts{}); !errors.Is(err, ErrDevice) || !errors.Is(err, cuda.ErrNoDriver) {
		t.Errorf("got %v", err)
	}
	if _, err := c.listed(); !errors.Is(err, cuda.ErrNoDriver) {
		t.Errorf("got %v", err)
	}
	gpus := fake.New(fake.H100)
	c.nvml = func() (*cuda.Host, error) { return cuda.Open(cuda.Options{Library: gpus}) }
	f := &Facts{}
	if err := c.addGPU(f); !errors.Is(err, ErrDevice) || !errors.Is(err, cuda.ErrNotFound) || f.GPU == nil || f.GPUFault != "" {
		t.Errorf("got %v, %+v", err, f)
	}
	if _, err := c.listed(); !errors.Is(err, cuda.ErrNotFound) {
		t.Errorf("got %v", err)
	}
	if !gpus.Closed() {
		t.Error("NVML is left open")
	}
	if err := c.sampleMIG("MIG-absent"); err != nil {
		t.Error(err)
	}
	if got := answers(c.report.Looks); len(got["F2"]) != 1 || got["F2"][0] != Misses {
		t.Errorf("of an instance that is not there: %v", got)
	}
}

// TestFactsText: what is not known is left out.
func TestFactsText(t *testing.T) {
	var none *Facts
	for want, f := range map[string]*Facts{
		"": none,
		"m; 2 GiB of memory; Linux 6.1; ONNX Runtime 1.30.0.":   {Machine: "m", MemoryBytes: 2 << 30, Kernel: "6.1", ORT: "1.30.0"},
		"m; 0 GiB of memory; Linux ; ONNX Runtime ; no driver.": {Machine: "m", GPUFault: "no driver"},
	} {
		if got := f.text(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	r := Report{Facts: &Facts{GPU: &cuda.Facts{Driver: "580.65.06"}}}
	if got := r.Facts.text(); !strings.Contains(got, "NVIDIA driver 580.65.06, for CUDA up to ") {
		t.Error(got)
	}
}

// TestWords: counts are sorted, and tables say in words what numbers mean.
func TestWords(t *testing.T) {
	if got := counts(map[string]int64{"late": 2, "dropped": 10, "refused": 1}); got != "10 dropped, 2 late, 1 refused" {
		t.Error(got)
	}
	if operators(0) != "every node" || operators(16) != "16" || yes(true) != "yes" || yes(false) != "no" {
		t.Error("words are odd")
	}
	var b strings.Builder
	writeTable(&b, table{Title: "T", Note: "N", Head: []string{"a", "b"}, Rows: [][]string{{"1|2", "x\ny"}}})
	if want := "\n## T\n\nN\n\n| a | b |\n|---|---|\n| 1/2 | x y |\n"; b.String() != want {
		t.Errorf("got %q", b.String())
	}
	for _, c := range []struct {
		change func(*Report)
		says   string
	}{
		{func(r *Report) { r.Choices[0].Within = false }, "none within 5 %"},
		{func(r *Report) { r.Outputs[0].Within = false }, "beyond"},
		{func(r *Report) { r.Outputs[0].Error = "x" }, "failed"},
		{func(r *Report) { r.Profile.Rows = 0 }, "no predictor"},
		{func(r *Report) { r.Profile = nil }, "this is no comparison"},
		{func(r *Report) { r.Rehearsal = true }, rehearsalLabel},
	} {
		r := good()
		if text := string(r.markdown()); strings.Contains(text, c.says) {
			t.Errorf("%q is said of a good report", c.says)
		}
		c.change(r)
		html, err := r.page()
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"text": string(r.markdown()), "page": string(html)} {
			if !strings.Contains(text, c.says) {
				t.Errorf("the %s does not say %q", name, c.says)
			}
		}
	}
}

// TestErrorsAreTold: each sentinel says whose it is, and no two say the same.
func TestErrorsAreTold(t *testing.T) {
	seen := map[string]bool{}
	for _, err := range []error{ErrOptions, ErrDevice, ErrWorker, ErrDaemon, ErrNothing} {
		if !strings.HasPrefix(err.Error(), "gpucheck: ") || seen[err.Error()] {
			t.Errorf("%v", err)
		}
		seen[err.Error()] = true
	}
}

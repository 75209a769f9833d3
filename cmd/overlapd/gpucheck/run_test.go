package gpucheck

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
)

// rehearse returns the options of a short rehearsal in which this binary is
// overlapd. Workers are real; what else a check starts is made up.
func rehearse(t *testing.T, role string) Options {
	t.Helper()
	path, err := ort.Find()
	if err != nil {
		t.Skip(err)
	}
	t.Setenv(ort.PathVariable, path)
	t.Setenv(roleVariable, role)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := Rehearsal()
	o.Models = named("tiny_mlp", "tiny_add")
	for _, list := range [][]Model{o.Models, o.Services} {
		for i := range list {
			if list[i].Path, err = zoo.Build(list[i].Name, dir, 1, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	o.Batches = []int{1}
	o.Policies = []string{"fcfs", "edf", "overlap"}
	o.Load, o.Turn, o.MaxRate = 3*time.Second, time.Second, 50
	o.Out, o.CacheDir, o.Command = filepath.Join(dir, "out"), filepath.Join(dir, "optimized"), []string{self}
	o.Machine, o.Version, o.Commit = "a machine", "1", "abc"
	return o
}

// brief leaves out the load, which takes its time.
func brief(o Options) Options {
	o.Policies, o.Load = []string{"edf"}, time.Second
	return o
}

func run(t *testing.T, o Options) *Report {
	t.Helper()
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(filepath.Join(o.Out, "*.incoming")); err != nil || len(left) > 0 {
		t.Errorf("files are left half written: %v, %v", left, err)
	}
	return r
}

// status returns how a step of the report ended, and why.
func status(r *Report, name string) (string, string) {
	for _, s := range r.Steps {
		if s.Name == name {
			return s.Status, s.Error
		}
	}
	return "", ""
}

func TestRun(t *testing.T) {
	o := rehearse(t, healthy)
	var told []string
	o.Progress = func(s string) { told = append(told, s) }
	r := run(t, o)
	for _, s := range r.Steps {
		if s.Status != Done {
			t.Errorf("%s: %s: %s", s.Name, s.Status, s.Error)
		}
	}
	if len(r.Steps) != len(steps) || len(r.Outputs) != 2 || len(r.Cuts) != 6 || len(r.Sessions) != 6 || len(r.Pairs) != 3 || len(r.Turns) != 3 {
		t.Errorf("%d steps, %d outputs, %d cuts, %d sessions, %d pairs, %d turns", len(r.Steps), len(r.Outputs), len(r.Cuts), len(r.Sessions), len(r.Pairs), len(r.Turns))
	}
	for _, p := range r.Pairs {
		if p.Rounds < minRounds || p.AloneAMS <= 0 || p.AloneBMS <= 0 || p.TogetherMS <= 0 || p.SequentialMS < p.AloneAMS || p.MPS {
			t.Errorf("%+v", p)
		}
	}
	if r.Repeat == nil || r.Repeat.Runs != repeats || r.Repeat.MedianMS <= 0 || r.Repeat.P99MS < r.Repeat.MedianMS || r.Repeat.P1MS > r.Repeat.MedianMS {
		t.Errorf("%+v", r.Repeat)
	}
	if p := r.Profile; p == nil || p.MAPE != 4.25 || p.Rows != 30 || p.Measured != 40 || p.DriftPercent != -0.5 {
		t.Errorf("%+v", r.Profile)
	}
	if fcfs, overlap := r.policy("fcfs"), r.policy("overlap"); fcfs == nil || overlap == nil || fcfs.Violations != 1 || fcfs.Requests == 0 || overlap.Violations > 0.9 {
		t.Errorf("%+v", r.Policies)
	}
	if len(told) < len(steps) || !strings.HasPrefix(told[0], "1 of 10: ") {
		t.Errorf("told %q", told)
	}
	checkFiles(t, o.Out, r)
}

// checkFiles looks at what was saved last.
func checkFiles(t *testing.T, dir string, want *Report) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, JSONName))
	if err != nil {
		t.Fatal(err)
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if r.Format != Format || !r.Rehearsal || len(r.Steps) != len(want.Steps) || len(r.Verdicts) != len(want.Verdicts) || r.Pairs[0] != want.Pairs[0] {
		t.Errorf("saved %+v", r)
	}
	for _, name := range []string{PageName, MarkdownName} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{rehearsalLabel, "a machine", "tiny_cnn, tiny_bert", "4.2 %", "overlap"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%q is not in %s", want, name)
			}
		}
		if strings.Contains(string(text), "http://") || strings.Contains(string(text), "https://") {
			t.Errorf("%s refers to something outside", name)
		}
	}
}

// TestRunGoesOn: what goes wrong in a step is in the report, and the others run.
func TestRunGoesOn(t *testing.T) {
	for role, c := range map[string]struct{ step, status, why string }{
		noProbes:   {"outputs", Failed, "tiny_mlp.onnx cannot be loaded"},
		noTraining: {"profile", Failed, "too few groups"},
		noServing:  {"load", Failed, "a worker is lost: no such model"},
	} {
		t.Run(role, func(t *testing.T) {
			r := run(t, brief(rehearse(t, role)))
			if got, why := status(r, c.step); got != c.status || !strings.Contains(strings.ReplaceAll(why, "-seed1", ""), c.why) {
				t.Errorf("%s %s: %s, want %s: %s", c.step, got, why, c.status, c.why)
			}
			if got, why := status(r, "pairs"); got != Done {
				t.Errorf("pairs %s: %s", got, why)
			}
			if len(r.Steps) != len(steps) {
				t.Errorf("%d steps", len(r.Steps))
			}
			if role == noTraining {
				checkUntrained(t, r)
			}
		})
	}
}

// checkUntrained: without a predictor there is load all the same, and a word of it.
func checkUntrained(t *testing.T, r *Report) {
	t.Helper()
	if r.Profile == nil || r.Profile.Measured != 40 || r.Profile.Rows != 0 {
		t.Errorf("%+v", r.Profile)
	}
	if note := r.policyTable().Note; !strings.Contains(note, "There is no predictor") {
		t.Errorf("the load's note does not say that there is no predictor: %s", note)
	}
	if v := r.judgeProfile(); v.Answer != NotMeasured || v.Got != "40 measurements, and no predictor" {
		t.Errorf("%+v", v)
	}
}

func TestOutputsApart(t *testing.T) {
	o := rehearse(t, oneApart)
	o.Progress = func(string) {}
	c := &check{Options: o, report: newReport(&o, time.Now())}
	if err := c.compareOutputs(context.Background()); err != nil {
		t.Fatal(err)
	}
	for _, o := range c.report.Outputs {
		if o.Within != (o.Model != "tiny_mlp") {
			t.Errorf("%+v", o)
		}
	}
	if v := c.report.judgeOutputs(); v.Answer != Miss || v.Got != "1 of 2 models" {
		t.Errorf("%+v", v)
	}
}

// TestRunOutOfTime: no step waits longer than its budget, whatever it started.
func TestRunOutOfTime(t *testing.T) {
	o := rehearse(t, slow)
	o.Budget = 2 * minBudget
	r := run(t, o)
	for _, name := range []string{"outputs", "cuts", "sessions", "pairs"} {
		if got, why := status(r, name); got != OutOfTime {
			t.Errorf("%s: %s: %s", name, got, why)
		}
	}
	if got, why := status(r, "load"); got != Failed || !strings.Contains(why, ErrNothing.Error()) {
		t.Errorf("load %s: %s", got, why)
	}
	if r.Seconds > 5*o.Budget.Seconds() {
		t.Errorf("it took %.1f s of %v", r.Seconds, o.Budget)
	}
}

func TestRunInterrupted(t *testing.T) {
	o := rehearse(t, healthy)
	ctx, cancel := context.WithCancel(context.Background())
	o.Progress = func(s string) {
		if strings.HasPrefix(s, "3 of 10") {
			cancel()
		}
	}
	r, err := Run(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	var ends []string
	for _, s := range r.Steps {
		ends = append(ends, s.Status)
	}
	if got := strings.Join(ends, " "); got != "done done"+strings.Repeat(" "+Left, 8) {
		t.Errorf("ended %s", got)
	}
}

// TestRunOnCUDA: without a GPU each step that needs one says so, and nothing hangs.
func TestRunOnCUDA(t *testing.T) {
	if _, err := os.Stat("/dev/nvidiactl"); err == nil {
		t.Skip("there is a GPU")
	}
	o := brief(rehearse(t, noProbes))
	o.Device, o.GPU = cutcost.CUDA, "0"
	r := run(t, o)
	if r.Rehearsal || strings.Contains(string(r.markdown()), rehearsalLabel) {
		t.Error("a check of a GPU is called a rehearsal")
	}
	for _, s := range r.Steps {
		if s.Status != Failed {
			t.Errorf("%s: %s: %s", s.Name, s.Status, s.Error)
		}
	}
	for _, v := range r.Verdicts {
		if v.Answer == Pass && v.Unit != "s" { // it took no time
			t.Errorf("%+v", v)
		}
	}
	if r.Facts == nil || r.Facts.GPUFault == "" {
		t.Errorf("%+v", r.Facts)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	good := rehearse(t, healthy)
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Options){
		`device "tpu"`:            func(o *Options) { o.Device = "tpu" },
		"2 services":              func(o *Options) { o.Services = o.Services[:2] },
		"tiny_cnn is named twice": func(o *Options) { o.Services = slices.Clone(o.Services); o.Services[1] = o.Services[0] },
		"1 must be among them":    func(o *Options) { o.Batches = []int{4} },
		"batch size 1000":         func(o *Options) { o.Batches = []int{1, 1000} },
		"no granularities":        func(o *Options) { o.Granularities = nil },
		"-1 operators":            func(o *Options) { o.Granularities = []int{-1} },
		"no models":               func(o *Options) { o.Models = nil },
		"budget 1ms":              func(o *Options) { o.Budget = time.Millisecond },
		"turn 0s":                 func(o *Options) { o.Turn = 0 },
		"0 groups":                func(o *Options) { o.Groups = 0 },
		"no policies":             func(o *Options) { o.Policies = nil },
		"load factor 0":           func(o *Options) { o.LoadFactor = 0 },
		"sequence length 0":       func(o *Options) { o.SeqLen = 0 },
		"a folder":                func(o *Options) { o.Out = "" },
	} {
		o := good
		change(&o)
		if _, err := Run(context.Background(), o); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestDefaultsFit(t *testing.T) {
	o := DefaultOptions()
	o.Out, o.CacheDir, o.Command = "out", "cache", []string{"overlapd"}
	if err := o.Check(); err != nil {
		t.Error(err)
	}
	if o.Budget >= 8*time.Minute || o.Profile > wantTime*time.Second || o.Load < time.Minute {
		t.Errorf("budget %v, profile %v, load %v", o.Budget, o.Profile, o.Load)
	}
	for _, m := range append(slices.Clone(o.Models), o.Services...) {
		if _, ok := zoo.Lookup(m.Name); !ok {
			t.Errorf("the zoo has no %s", m.Name)
		}
	}
}

// TestTerminated: who is told to end by a signal leaves what was measured, and waits
// for no process that it started.
func TestTerminated(t *testing.T) {
	o := rehearse(t, slow)
	ctx, stop := signal.NotifyContext(t.Context(), unix.SIGTERM)
	defer stop()
	o.Progress = func(s string) {
		if strings.HasSuffix(s, cutcost.ModeApart) {
			if err := unix.Kill(os.Getpid(), unix.SIGTERM); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := Run(ctx, o); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(o.Out, JSONName))
	if err != nil {
		t.Fatal(err)
	}
	var saved Report
	if err := json.Unmarshal(data, &saved); err != nil || len(saved.Steps) != len(steps) || saved.Facts == nil {
		t.Fatalf("saved %d steps, facts %v, %v", len(saved.Steps), saved.Facts, err)
	}
	if s := saved.Steps; s[0].Status != Done || s[1].Status != Left || s[1].Error != "interrupted" || s[9].Status != Left {
		t.Errorf("%+v", s)
	}
}

package cutcost

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
)

// probeVariable makes the test binary a probe. Its value says which.
const probeVariable = "OVERLAPD_CUTCOST_TEST"

func TestMain(m *testing.M) {
	os.Setenv("GORACE", "atexit_sleep_ms=0") // else each process that the race detector watches takes a second to end
	switch os.Getenv(probeVariable) {
	case "":
		goleak.VerifyTestMain(m)
	case "real":
		answer(Probe)
	case "made up":
		answer(func(s ProbeSpec) (ProbeResult, error) {
			if s.Batch == 13 {
				return ProbeResult{}, errors.New("overlapd: no thirteen")
			}
			return ProbeResult{
				timing:   timing{Segments: 5, Rounds: 15, WholeMS: 2, CutMS: 3, Equal: true},
				RSSBytes: map[string]int64{ModeTime: 1, ModeWhole: 100, ModeCut: 150}[s.Mode],
			}, nil
		})
	case "slow":
		time.Sleep(time.Minute)
	}
}

// answer is what the command bench probe does.
func answer(probe func(ProbeSpec) (ProbeResult, error)) {
	var spec ProbeSpec
	err := json.NewDecoder(os.Stdin).Decode(&spec)
	var r ProbeResult
	if err == nil {
		r, err = probe(spec)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func options(t *testing.T, kind string) Options {
	t.Helper()
	t.Setenv(probeVariable, kind)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Options{
		Models: []string{"m"}, Batches: []int{1}, Threads: []int{1}, Command: []string{self},
		Spec: ProbeSpec{SeqLen: 8, Duration: time.Millisecond, Seed: 1, CacheDir: t.TempDir()},
		Path: func(model string) (string, error) { return model, nil },
	}
}

func TestRun(t *testing.T) {
	o := options(t, "made up")
	o.Models = append(o.Models, "n")
	o.Batches, o.Threads = []int{1, 4}, []int{1, 2}
	var told []string
	o.Progress = func(doing string) { told = append(told, doing) }
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	var order []string
	for _, row := range r {
		order = append(order, fmt.Sprintf("%s/%d/%d", row.Model, row.Threads, row.Batch))
		if row.Ratio != 1.5 || row.RSSRatio != 1.5 || row.Segments != 5 || !row.Equal {
			t.Errorf("got %+v", row)
		}
	}
	if got, want := strings.Join(order, " "), "m/1/1 m/1/4 m/2/1 m/2/4 n/1/1 n/1/4 n/2/1 n/2/4"; got != want {
		t.Errorf("order %s, want %s", got, want)
	}
	if len(told) != 3*len(order) || told[0] != "m, batch 1, 1 threads: time" {
		t.Errorf("told %q", told)
	}
}

func TestRunSaysWhatFailed(t *testing.T) {
	o := options(t, "made up")
	o.Batches = []int{1, 13}
	r, err := Run(context.Background(), o)
	if err == nil || !strings.HasPrefix(err.Error(), "m, batch 13, 1 threads: no thirteen (") {
		t.Errorf("got %v", err)
	}
	if len(r) != 1 {
		t.Errorf("what was measured before is gone: %+v", r)
	}
}

func TestRunStopsWithItsContext(t *testing.T) {
	o := options(t, "slow")
	ctx, cancel := context.WithCancel(context.Background())
	o.Progress = func(string) { cancel() }
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestCheck(t *testing.T) {
	if _, err := Run(context.Background(), Options{Batches: []int{1}, Threads: []int{1}, Spec: ProbeSpec{SeqLen: 1, Duration: 1}}); err != nil {
		t.Error(err)
	}
	_, err := Run(context.Background(), Options{Batches: []int{0, 4097}, Spec: ProbeSpec{Target: -1}})
	if err == nil {
		t.Fatal("bad options are run")
	}
	for _, want := range []string{"not 0", "not 4097", "the number of thread counts", "the sequence length", "operators wanted", "the duration"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// TestProbe measures tiny models in processes of their own, as one process
// takes one environment of ONNX Runtime at a time.
func TestProbe(t *testing.T) {
	if path, err := ort.Find(); err != nil {
		t.Skip(err)
	} else {
		t.Setenv(ort.PathVariable, path)
	}
	o := options(t, "real")
	o.Models = []string{"tiny_mlp", "tiny_cnn", "tiny_bert", "tiny_add"}
	o.Path = func(name string) (string, error) { return zoo.Build(name, t.TempDir(), 1, nil) }
	o.Batches = []int{2}
	r, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r {
		if !row.Equal || row.Rounds < minRounds || row.Segments < 1 || row.WholeMS <= 0 || row.CutMS <= 0 ||
			row.WholeMinMS > row.WholeMS || row.CutMinMS > row.CutMS ||
			row.WholeRSSBytes < 1<<20 || row.CutPeakBytes < row.CutRSSBytes {
			t.Errorf("%+v", row)
		}
	}
}

// TestProbeApart compares a model with itself, cut: on one device nothing
// differs, and what was compared is all of the outputs.
func TestProbeApart(t *testing.T) {
	if path, err := ort.Find(); err != nil {
		t.Skip(err)
	} else {
		t.Setenv(ort.PathVariable, path)
	}
	o := options(t, "real")
	for name, elements := range map[string]int64{"tiny_mlp": 20, "tiny_add": 64} {
		path, err := zoo.Build(name, t.TempDir(), 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		r, err := RunProbe(context.Background(), o.Command, ProbeSpec{
			Path: path, CacheDir: o.Spec.CacheDir, Batch: 2, SeqLen: 1, Threads: 1, Mode: ModeApart,
		})
		if err != nil {
			t.Fatal(err)
		}
		if d := r.Deviation; d == nil || d.Elements != elements || d.MaxAbs != 0 || d.Largest == 0 || d.NotFinite != 0 {
			t.Errorf("%s: %+v", name, r.Deviation)
		}
	}
}

func TestProbeRefuses(t *testing.T) {
	if path, err := ort.Find(); err != nil {
		t.Skip(err)
	} else {
		t.Setenv(ort.PathVariable, path)
	}
	path, err := zoo.Build("tiny_add", t.TempDir(), 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := options(t, "real")
	for want, spec := range map[string]ProbeSpec{
		`unknown mode "both"`:  {Path: path, Mode: "both"},
		"nothing.onnx":         {Path: "nothing.onnx", Mode: ModeTime},
		`unknown device "tpu"`: {Path: path, Mode: ModeTime, Device: "tpu"},
	} {
		spec.Batch, spec.SeqLen, spec.Threads, spec.CacheDir = 1, 1, 1, o.Spec.CacheDir
		if r, err := RunProbe(context.Background(), o.Command, spec); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %+v, %v, want %q", r, err, want)
		}
	}
}

func TestTable(t *testing.T) {
	d := Table([]Row{
		{
			Model: "resnet50", Batch: 4, Threads: 2, timing: timing{Segments: 58, WholeMS: 91.234, CutMS: 93.5, Equal: true}, Ratio: 1.0248,
			WholeRSSBytes: 300 << 20, CutRSSBytes: 330 << 20, RSSRatio: 1.1, Intermediates: 38 << 20,
		},
		{Model: "m", Batch: 1, Threads: 1, timing: timing{Segments: 2, WholeMS: 0.051, CutMS: 0.06}, Ratio: 1.176, RSSRatio: 1},
	})
	const want = `model     batch  threads  operators  whole ms  cut ms  ratio  whole MiB  cut MiB  ratio  live MiB  outputs
resnet50      4        2         58     91.23   93.50  1.025        300      330   1.10      38.0  equal
m             1        1          2      0.05    0.06  1.176          0        0   1.00       0.0  DIFFER
`
	var b strings.Builder
	if err := d.WriteText(&b); err != nil || b.String() != want {
		t.Errorf("%v, got\n%s, want\n%s", err, &b, want)
	}
}

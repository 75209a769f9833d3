package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/probe"
)

// probeVariable is the environment variable that makes the test binary act as a probe. Its value
// selects the probe.
const probeVariable = "OVERLAPD_CUTCOST_TEST"

// beProbe is what the test binary does as a probe.
func beProbe(kind string) {
	switch kind {
	case "real":
		answer(probe.Measure)
	case "made up":
		answer(func(s probe.Spec) (r probe.Result, err error) {
			if s.Batch == 13 {
				return r, errors.New("overlapd-lab: no thirteen")
			}
			r.Segments, r.Rounds, r.WholeMS, r.CutMS, r.Equal = 5, 15, 2, 3, true
			r.RSSBytes = map[string]int64{probe.ModeTime: 1, probe.ModeWhole: 100, probe.ModeCut: 150}[s.Mode]
			return r, nil
		})
	case "slow":
		time.Sleep(time.Minute)
	}
}

// answer is what the command bench probe does.
func answer(measure func(probe.Spec) (probe.Result, error)) {
	var spec probe.Spec
	err := json.NewDecoder(os.Stdin).Decode(&spec)
	var r probe.Result
	if err == nil {
		r, err = measure(spec)
	}
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func options(t *testing.T, kind string) cutOptions {
	t.Helper()
	t.Setenv(probeVariable, kind)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return cutOptions{
		Models: []string{"m"}, Batches: []int{1}, Threads: []int{1}, Command: []string{self},
		Spec: probe.Spec{SeqLen: 8, Duration: time.Millisecond, Seed: 1, CacheDir: t.TempDir()},
		Path: func(model string) (string, error) { return model, nil },
	}
}

func TestCutCost(t *testing.T) {
	o := options(t, "made up")
	o.Models = append(o.Models, "n")
	o.Batches, o.Threads = []int{1, 4}, []int{1, 2}
	var told []string
	o.Progress = func(doing string) { told = append(told, doing) }
	r, err := o.run(context.Background())
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

func TestCutCostSaysWhatFailed(t *testing.T) {
	o := options(t, "made up")
	o.Batches = []int{1, 13}
	r, err := o.run(context.Background())
	if err == nil || !strings.HasPrefix(err.Error(), "m, batch 13, 1 threads: no thirteen (") {
		t.Errorf("got %v", err)
	}
	if len(r) != 1 {
		t.Errorf("what was measured before is gone: %+v", r)
	}
}

func TestCutOptions(t *testing.T) {
	if _, err := (&cutOptions{Batches: []int{1}, Threads: []int{1}, Spec: probe.Spec{SeqLen: 1, Duration: 1}}).run(context.Background()); err != nil {
		t.Error(err)
	}
	_, err := (&cutOptions{Batches: []int{0, 4097}, Spec: probe.Spec{Target: -1}}).run(context.Background())
	if err == nil {
		t.Fatal("bad options are run")
	}
	for _, want := range []string{"not 0", "not 4097", "the number of thread counts", "the sequence length", "operators wanted", "the duration"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
}

// TestCutCostOfTinyModels measures tiny models in processes of their own, as one process
// takes one environment of ONNX Runtime at a time.
func TestCutCostOfTinyModels(t *testing.T) {
	if path, err := ort.Find(); err != nil {
		t.Skip(err)
	} else {
		t.Setenv(ort.PathVariable, path)
	}
	o := options(t, "real")
	o.Models = []string{"tiny_mlp", "tiny_cnn", "tiny_bert", "tiny_add"}
	o.Path = func(name string) (string, error) { return zoo.Build(name, t.TempDir(), 1, nil) }
	o.Batches = []int{2}
	r, err := o.run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range r {
		if !row.Equal || row.Rounds < 15 || row.Segments < 1 || row.WholeMS <= 0 || row.CutMS <= 0 ||
			row.WholeMinMS > row.WholeMS || row.CutMinMS > row.CutMS ||
			row.WholeRSSBytes < 1<<20 || row.CutPeakBytes < row.CutRSSBytes {
			t.Errorf("want equal outputs, rounds, and times and memory that fit together: %+v", row)
		}
	}
}

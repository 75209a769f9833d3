package selection

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// smallSet solves a set of few policies.
func smallSet(t testing.TB, change func(*Worker)) *Set {
	t.Helper()
	w := small(3, 1, 1, 10)
	w.Variants[0].Hash = "0123456789abcdef"
	if change != nil {
		change(&w)
	}
	s, err := w.SolveSet(context.Background(), 30, 60, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Device = "here"
	return s
}

func TestSetIsDense(t *testing.T) {
	for _, high := range []float64{30, 300, 1e4} {
		solved := 0
		s, err := small(3, 1, 1, 20).SolveSet(t.Context(), 30, high, func(n int, _ float64) { solved = n })
		if err != nil {
			t.Fatal(err)
		}
		// "fast" answers 3 in 24 ms, and no batch is better.
		first, last, most := s.Policies[0], s.Policies[len(s.Policies)-1], min(high, 3*3/0.024)
		if first.Rate != 30 || last.Rate != most || s.Rate != most || len(s.Policies) != solved {
			t.Errorf("%d of %d policies, from %v to %v", len(s.Policies), solved, first.Rate, last.Rate)
		}
		if ends := strings.Contains(s.Note, "the policies end at 375 queries a second, the most that a variant sustains (fast)"); ends != (high > most) {
			t.Errorf("up to %v: %q", high, s.Note)
		}
		for i, p := range s.Policies[1:] {
			if before := s.Policies[i]; p.Rate <= before.Rate || math.Abs(p.Accuracy-before.Accuracy) > 0.8 {
				t.Errorf("after %v with an accuracy of %v: %v with %v", before.Rate, before.Accuracy, p.Rate, p.Accuracy)
			}
		}
	}
}

// TestSetIsDenseWhereAccuraciesAreAlike: a policy for a higher load would cost what there is
// to gain.
func TestSetIsDenseWhereAccuraciesAreAlike(t *testing.T) {
	w := small(3, 1, 1, 20)
	for i := range w.Variants {
		w.Variants[i].Accuracy = 80 + float64(i)
	}
	s, err := w.SolveSet(t.Context(), 3, 120, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range s.Policies[1:] {
		if before := s.Policies[i]; math.Abs(p.Accuracy-before.Accuracy) > 0.1 && p.Rate-before.Rate > 2*leastStep*s.Rate {
			t.Errorf("after %v with an accuracy of %v: %v with %v", before.Rate, before.Accuracy, p.Rate, p.Accuracy)
		}
	}
}

// TestSetIsBounded has so many steps in accuracy that not all gaps can be closed.
func TestSetIsBounded(t *testing.T) {
	w := small(2, 1, 1, 12)
	w.Variants = w.Variants[:2]
	w.Variants[0].Accuracy, w.Variants[1].Accuracy = 1e-3, 1e3
	s, err := w.SolveSet(t.Context(), 1, 240, nil)
	if err != nil || len(s.Policies) != maxPolicies || !strings.Contains(s.Note, "policies for neighbouring loads differ by up to") {
		t.Errorf("%d policies, %q, %v", len(s.Policies), s.Note, err)
	}
}

func TestSetRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		low, high float64
		target    float64
	}{
		"give a number above 0 and at most":              {0, 10, 100},
		"loads from 30 to 20":                            {30, 20, 100},
		"loads from 30 to NaN":                           {30, math.NaN(), 100},
		"the most that a variant sustains (fast) is 375": {400, 500, 100},
		"no variant answers a query within 9 ms":         {30, 60, 9},
		"target of NaN ms; give 0.001 to":                {30, 60, math.NaN()},
	} {
		w := small(3, 1, 1, 10)
		w.Target = c.target
		if _, err := w.SolveSet(t.Context(), c.low, c.high, nil); !errors.Is(err, errWorker) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in: %v", want, err)
		}
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := small(3, 1, 1, 10).SolveSet(stopped, 30, 60, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}
}

func TestSetPicksTheLowestLoadThatIsEnough(t *testing.T) {
	s := smallSet(t, nil)
	last := len(s.Policies) - 1
	for rate, want := range map[float64]int{0: 0, -1: 0, 30: 0, 30.001: 1, s.Policies[last-1].Rate: last - 1, 59: last, 60: last, 1e9: last, math.NaN(): last, math.Inf(1): last} {
		if got := slices.Index(s.Policies, s.At(rate)); got != want {
			t.Errorf("for %v: policy %d, want %d", rate, got, want)
		}
	}
	if n := testing.AllocsPerRun(100, func() { s.At(45).Choose(3, 40) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func written(t testing.TB, s *Set) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "policies.json")
	if err := s.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestSetRoundTrips(t *testing.T) {
	for name, change := range map[string]func(*Worker){
		"FLD": nil, "MD": func(w *Worker) { w.Levels = 0 }, "clusters": func(w *Worker) { w.CV = 2 },
		"variable": func(w *Worker) { w.Variable = true }, "drop": func(w *Worker) { w.Drop = true },
		"one variant": func(w *Worker) { w.Variants = w.Variants[:1] },
		"one is slower and as accurate": func(w *Worker) {
			w.Variants[2].Accuracy = w.Variants[1].Accuracy
		},
	} {
		s := smallSet(t, change)
		read, err := ReadSet(written(t, s), &s.Worker)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if diff := cmp.Diff(s, read, cmp.AllowUnexported(Policy{}, action{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if read.Drifted(&s.Worker) {
			t.Errorf("%s: the policies have drifted from themselves", name)
		}
	}
}

func TestReadSetRefuses(t *testing.T) {
	data, err := os.ReadFile(written(t, smallSet(t, func(w *Worker) { w.Levels = 4 })))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		old, new string
		kind     error
		want     string
	}{
		"version":       {"overlapd-selection/1", "overlapd-selection/2", errForeign, `its format is "overlapd-selection/2"`},
		"unknown field": {`"slack_ms"`, `"slick_ms"`, errDamaged, `unknown field "slick_ms"`},
		"accuracy":      {`"accuracy":75`, `"accuracy":-75`, errDamaged, "variant mean has an accuracy of -75"},
		"null":          {`"accuracy":75`, `"accuracy":null`, errDamaged, "null in place of a value"},
		"NaN":           {`"accuracy":75`, `"accuracy":NaN`, errDamaged, "invalid character"},
		"target":        {`"target_ms":100`, `"target_ms":0`, errDamaged, "target of 0 ms"},
		"same name":     {`"name":"mean"`, `"name":"fast"`, errDamaged, `variant "fast" has no name or one that another variant has`},
		"levels":        {`"slack_ms":[0,25,50`, `"slack_ms":[0,25,20`, errDamaged, "level 2 of slack is 20 ms"},
		"negative slack": {
			`"slack_ms":[0`, `"slack_ms":[-1`, errDamaged, "level 0 of slack is -1 ms"},
		"too many levels": {`"slack_ms":[0`, `"slack_ms":[0` + strings.Repeat(",0", maxChoices/16), errDamaged, "choices; give 1 to"},
		"load":            {`"load":30`, `"load":300`, errDamaged, "is out of order"},
		"violations":      {`"violations":`, `"violations":-1e-3,"x":`, errDamaged, "unknown field"},
		"length":          {`"choices":[[1,`, `"choices":[[0,`, errDamaged, "policy 1 has invalid choices; give one for each"},
		"long":            {`"choices":[[1,`, `"choices":[[4000000000,`, errDamaged, "policy 1"},
		"variant":         {`"choices":[[1,0,1`, `"choices":[[1,3,1`, errDamaged, "policy 1"},
		"batch":           {`"choices":[[1,0,1`, `"choices":[[1,0,2`, errDamaged, "policy 1"},
		"dropped":         {`"choices":[[1,0,1`, `"choices":[[1,-1,1`, errDamaged, "policy 1"},
		"odd":             {`"choices":[[1,0,1`, `"choices":[[1,0`, errDamaged, "policy 1"},
		"queue":           {`"queue":4`, `"queue":3`, errDamaged, "one for each queue of 1 to 3 queries and"},
	} {
		text := strings.Replace(string(data), c.old, c.new, 1)
		if text == string(data) {
			t.Fatalf("%s: there is no %s in %.2000s", name, c.old, data)
		}
		refused(t, name, text, c.kind, c.want)
	}
	refused(t, "truncated", string(data[:len(data)/2]), errDamaged, "truncated after")
	refused(t, "empty", "", errForeign, "it is empty")
	refused(t, "nothing", `{"format":"overlapd-selection/1"}`, errDamaged, "give 1 to 100 policies")
	refused(t, "binary", "\x00\x01", errForeign, "not plain text")
}

// refused wants an error that names the file and says what to do.
func refused(t *testing.T, name, text string, kind error, want string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ReadSet(path, new(Worker))
	if !errors.Is(err, kind) {
		t.Fatalf("%s: %v", name, err)
	}
	for _, part := range []string{path, want, setRemedy} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q is not in: %v", name, part, err)
		}
	}
}

func TestSetFits(t *testing.T) {
	s := smallSet(t, nil)
	for want, change := range map[string]func(w *Worker){
		"": func(w *Worker) { slices.Reverse(w.Variants) },
		"the device is far, but the policies are for here":        func(w *Worker) { w.Device = "far" },
		"the target in ms is 90, but the policies are for 100":    func(w *Worker) { w.Target = 90 },
		"the number of workers is 2, but the policies are for 3":  func(w *Worker) { w.Workers = 2 },
		"variant fast has model file ffff, but the policies were": func(w *Worker) { w.Variants[0].Hash = "ffff" },
		"the accuracy of mean is 76, but the policies are for 75": func(w *Worker) { w.Variants[1].Accuracy = 76 },
		"variant slow of the policies does not exist":             func(w *Worker) { w.Variants = w.Variants[:2] },
		"the number of variants is 4, but the policies are for 3": func(w *Worker) { w.Variants = append(w.Variants, Variant{Name: "new"}) },
	} {
		w := s.Worker
		w.Variants = slices.Clone(s.Variants)
		change(&w)
		path := written(t, s)
		if _, err := ReadSet(path, &w); (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), setRemedy)) {
			t.Errorf("%q is not in: %v", want, err)
		}
		if s.Drifted(&w) != (want != "") {
			t.Errorf("%q: it has drifted: %v", want, want == "")
		}
	}
}

// Latencies are compared as far as both have them and a queue can be.
func TestSetDrifts(t *testing.T) {
	s := smallSet(t, nil)
	change := func(n int, to float64) *Worker {
		w := s.Worker
		w.Variants = slices.Clone(s.Variants)
		w.Variants[0].Latency = append(slices.Clone(w.Variants[0].Latency), 1e6, 1e6)[:n]
		w.Variants[0].Latency[n-1] *= to
		return &w
	}
	most := len(s.Variants[0].Latency)
	for name, drifted := range map[*Worker]bool{
		change(1, 1.1): false, change(1, 1.3): true, change(most, 0.7): true, change(most+1, 1): false, change(most+2, 2): false,
	} {
		if got := s.Drifted(name); got != drifted {
			t.Errorf("with %v ms: %v", name.Variants[0].Latency, got)
		}
	}
	s.Queue = 1
	if s.Drifted(change(2, 2)) {
		t.Error("a batch that is longer than the queue is compared")
	}
}

func FuzzReadSet(f *testing.F) {
	for _, change := range []func(*Worker){nil, func(w *Worker) { w.Drop, w.Levels = true, 3 }} {
		data, err := os.ReadFile(written(f, smallSet(f, change)))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
		f.Add(data[:len(data)/2])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := setKind.Read(strings.NewReader(string(data)), "")
		if err != nil {
			if !errors.Is(err, errForeign) && !errors.Is(err, errDamaged) {
				t.Errorf("%v is of no kind", err)
			}
			return
		}
		s := file.set()
		if s.Drifted(&s.Worker) {
			t.Errorf("a set does not fit itself: %v", s.Fits(&s.Worker))
		}
		for _, rate := range []float64{0, s.Rate, 2 * s.Rate} {
			for n := range s.Queue + 2 {
				for _, slack := range []float64{-1, s.Target / 2, s.Target} {
					p := s.At(rate)
					if v, b := p.Choose(n, slack); v >= len(p.Variants) || v >= 0 && b > len(p.Variants[v].Latency) {
						t.Fatalf("variant %d, batch of %d", v, b)
					}
				}
			}
		}
	})
}

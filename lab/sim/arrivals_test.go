package sim

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func arrivalTimes(t testing.TB, a Arrivals, n int) []time.Duration {
	t.Helper()
	if err := a.check(n); err != nil {
		t.Fatal(err)
	}
	list, err := a.times(n, stream(1, forTimes, 0), stream(1, forThinning, 0))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(list) || list[0] < 0 {
		t.Fatalf("%s: times are not in order", a.Process)
	}
	return list
}

// moments returns the rate, and the coefficient of variation of the distances.
func moments(list []time.Duration) (qps, variation float64) {
	var sum, squares float64
	for i, at := range list[1:] {
		d := (at - list[i]).Seconds()
		sum += d
		squares += d * d
	}
	n := float64(len(list) - 1)
	m := sum / n
	return 1 / m, math.Sqrt(squares/n-m*m) / m
}

// TestMoments compares rate and burstiness with what the processes promise. The
// seed is fixed, so that nothing here is up to chance.
func TestMoments(t *testing.T) {
	for name, c := range map[string]struct {
		arrivals  Arrivals
		variation float64
	}{
		"constant":      {Arrivals{Process: Constant, QPS: 100}, 0},
		"poisson":       {Arrivals{Process: Poisson, QPS: 100}, 1},
		"gamma 4":       {Arrivals{Process: Gamma, Shape: 4, QPS: 100}, 0.5},
		"gamma 0.25":    {Arrivals{Process: Gamma, Shape: 0.25, QPS: 100}, 2},
		"loads":         {Arrivals{Process: Loads, Loads: slices.Repeat([]float64{6000}, 1000)}, 1},
		"scaled":        {Arrivals{Process: Poisson, QPS: 50, Scale: 2}, 1},
		"thinned":       {Arrivals{Process: Poisson, QPS: 200, Keep: 0.5}, 1},
		"even mmpp":     {Arrivals{Process: MMPP, States: []State{{100, 1}, {100, 1}}}, 1},
		"thinned gamma": {Arrivals{Process: Gamma, Shape: 4, QPS: 400, Keep: 0.25}, math.Sqrt(0.25*0.25 + 0.75)},
	} {
		qps, variation := moments(arrivalTimes(t, c.arrivals, 200_000))
		if math.Abs(qps-100) > 2 || math.Abs(variation-c.variation) > 0.03 {
			t.Errorf("%s: %.2f queries per second that vary by %.3f, want 100 and %v", name, qps, variation, c.variation)
		}
	}
}

// TestLoads finds each minute as full as it should be.
func TestLoads(t *testing.T) {
	loads := []float64{6000, 0, 12000}
	list := arrivalTimes(t, Arrivals{Process: Loads, Loads: loads, Scale: 1}, 0)
	counts := make([]float64, len(loads))
	for _, at := range list {
		counts[int(at.Minutes())]++
	}
	for i := range loads {
		if math.Abs(counts[i]-loads[i]) > 4*math.Sqrt(loads[i]) {
			t.Errorf("minute %d has %v queries, want about %v", i, counts[i], loads[i])
		}
	}
}

func TestBadArrivals(t *testing.T) {
	for want, a := range map[string]Arrivals{
		`unknown process ""`:            {},
		"0 queries per second":          {Process: Poisson},
		"NaN queries per second":        {Process: Poisson, QPS: math.NaN()},
		"shape 0":                       {Process: Gamma, QPS: 1},
		"mmpp with 1 states":            {Process: MMPP, States: []State{{1, 1}}},
		"state 1 has 1 queries":         {Process: MMPP, States: []State{{1, 1e-9}, {1, 0}}},
		"states change more than 10000": {Process: MMPP, States: []State{{1, 1e-9}, {0, 1e-9}}},
		"no state of mmpp has queries":  {Process: MMPP, States: []State{{0, 1}, {0, 1}}},
		"the trace is empty":            {Process: Times},
		"time 1 is 1s":                  {Process: Times, Times: []time.Duration{2 * time.Second, time.Second}},
		"minute 0 has a load of -1":     {Process: Loads, Loads: []float64{-1}},
		"no minute has a load":          {Process: Loads, Loads: []float64{0}},
		"scale -1":                      {Process: Poisson, QPS: 1, Scale: -1},
		"keep 2":                        {Process: Poisson, QPS: 1, Keep: 2},
		"keep 1e-09":                    {Process: Poisson, QPS: 1, Keep: 1e-9},
		"+Inf queries per second":       {Process: Constant, QPS: math.Inf(1)},
		"minute 1 has a load of NaN":    {Process: Loads, Loads: []float64{1, math.NaN()}},
		"mmpp with 0 states: want 2 to": {Process: MMPP},
	} {
		if err := a.check(1); !errors.Is(err, ErrArrivals) || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	a := Arrivals{Process: Poisson, QPS: 1}
	if err := a.check(0); err == nil {
		t.Error("a process without end is taken without a number of queries")
	}
	a = Arrivals{Process: Poisson, QPS: 1e-9}
	if _, err := a.times(10, stream(1, forTimes, 0), nil); !errors.Is(err, ErrArrivals) {
		t.Errorf("queries after years: got %v", err)
	}
}

func TestReadTraces(t *testing.T) {
	for name, c := range map[string]struct{ times, loads, want string }{
		"good times":  {times: "time_s,x\n0.5,a\n0.5,b\n2,c\n"},
		"good loads":  {loads: "minute,load\n0,8357\n1,0\n"},
		"empty":       {times: "\n", want: "trace.csv: unusable arrivals: the file is empty; it must have a header line with the column time_s (seconds"},
		"only header": {times: "time_s\n", want: "trace.csv: unusable arrivals: there are columns, but no row below"},
		"no column":   {times: "at\n1\n", want: "trace.csv:1: unusable arrivals: no column time_s or timestamp among \"at\"; it must have a header"},
		"no load":     {loads: "minute\n1\n", want: "trace.csv:1: unusable arrivals: no column load among \"minute\""},
		"no number":   {times: "time_s\n1\nx\n", want: `trace.csv:3: unusable arrivals: column 1 (time_s) is "x": it must be`},
		"negative":    {loads: "load\n5\n-1\n", want: `trace.csv:3: unusable arrivals: column 1 (load) is "-1": it must be`},
		"NaN":         {loads: "load\nNaN\n", want: `trace.csv:2: unusable arrivals: column 1 (load) is "NaN"`},
		"order":       {times: "time_s\n2\n1\n", want: `trace.csv:3: unusable arrivals: column 1 (time_s) is "1": it is before the time in the line above; sort`},
		"clock":       {times: "time_s\n1700000000\n", want: `trace.csv:2: unusable arrivals: column 1 (time_s) is "1700000000": it is after 8760h0m0s; give seconds since the start`},
		"ragged":      {times: "time_s,x\n1,2\n3\n", want: "trace.csv:3: unusable arrivals: 1 fields, the first line names 2 columns"},
		"all zero":    {loads: "load\n0\n", want: "trace.csv: no minute has a load"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "trace.csv")
			if err := os.WriteFile(path, []byte(c.times+c.loads), 0o600); err != nil {
				t.Fatal(err)
			}
			var err error
			if c.times != "" {
				_, err = readRecording(new(Scenario), path)
			} else {
				_, err = ReadLoads(path)
			}
			switch {
			case c.want == "" && err != nil:
				t.Error(err)
			case c.want != "" && (!errors.Is(err, ErrArrivals) || !strings.Contains(err.Error(), c.want)):
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	if _, err := readRecording(new(Scenario), filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: got %v", err)
	}
}

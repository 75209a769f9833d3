package sim

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/overlap"
)

var update = flag.Bool("update", false, "write the results into testdata")

const ms = time.Millisecond

// busyScenario has two services that ask for about as much as the device has.
func busyScenario(policy string) Scenario {
	return Scenario{
		Services: []Service{
			{Name: "a", Target: 50 * ms, Sizes: []int{1, 4}, MaxBatch: 8},
			{Name: "b", Target: 80 * ms, Sizes: []int{1, 4, 8}},
		},
		Arrivals: Arrivals{Process: Poisson, QPS: 130}, Queries: 2000, Seed: 1, Policy: policy, Scheduler: Others.New,
		Device: newFormula(0.6, 0.05, 400*time.Microsecond, 300*time.Microsecond),
	}
}

// plainScenario serves given queries of one service, each of which takes 10 ms
// and may take 25.
func plainScenario(queries ...Query) Scenario {
	for i := range queries {
		queries[i].Size = max(queries[i].Size, 1)
	}
	return Scenario{
		Services: []Service{{Name: "a", Target: 25 * ms}}, Given: queries, Policy: "fcfs", Check: true,
		Device: newFormula(1, 0, ms),
	}
}

func run(t testing.TB, sc Scenario) *Result {
	t.Helper()
	r, err := Run(sc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func text(t testing.TB, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b) + "\n"
}

// watch returns the rounds and the answers of a run.
func watch(t testing.TB, sc Scenario) (rounds []Round, answers []Answer) {
	t.Helper()
	sc.Observer = observer{
		Round: func(r *Round) {
			c := *r
			c.Spans, c.Outcome.Spans = slices.Clone(r.Spans), slices.Clone(r.Outcome.Spans)
			rounds = append(rounds, c)
		},
		Answer: func(a *Answer) { answers = append(answers, *a) },
	}
	run(t, sc)
	return rounds, answers
}

func TestSameSeedSameResult(t *testing.T) {
	for _, p := range wholePolicies() {
		sc := busyScenario(p)
		sc.Predictor = formulaPredictor(t, sc.Device.(*formula), 1)
		first := text(t, run(t, sc))
		if diff := cmp.Diff(first, text(t, run(t, sc))); diff != "" {
			t.Errorf("%s: twice the same differs:\n%s", p, diff)
		}
		sc.Seed++
		if first == text(t, run(t, sc)) {
			t.Errorf("%s: another seed gives the same", p)
		}
	}
}

// TestGoldens compares results with those in testdata. They are without a
// network, whose last digits depend on the processor.
func TestGoldens(t *testing.T) {
	many := busyScenario("clockwork")
	many.Devices, many.Dispatch, many.Arrivals = 3, Pool, Arrivals{Process: Gamma, QPS: 390, Shape: 0.5}
	troubled := busyScenario("abacus")
	troubled.Plan, troubled.MaxRetries, troubled.DecisionTime = true, 1, 100*time.Microsecond
	troubled.Faults = faults{Every: time.Second, Restart: 50 * ms, Failing: 0.01}
	troubled.Clients = clients{Leaving: 0.05, Timeout: 60 * ms}
	for name, sc := range map[string]Scenario{
		"fcfs": busyScenario("fcfs"), "edf": busyScenario("edf"), "overlap": busyScenario("overlap"),
		"many": many, "troubled": troubled,
	} {
		got, path := text(t, run(t, sc)), filepath.Join("testdata", name+".json")
		if *update {
			if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// TestPurposesAreApart changes one thing after the other, and finds the others
// as they were.
func TestPurposesAreApart(t *testing.T) {
	column := func(change func(*Scenario), of func(*Query) any) (list []any) {
		sc := busyScenario("fcfs")
		change(&sc)
		queries, err := sc.Submissions()
		if err != nil {
			t.Fatal(err)
		}
		for i := range queries {
			list = append(list, of(&queries[i]))
		}
		return list
	}
	at := func(q *Query) any { return q.At }
	service := func(q *Query) any { return q.Service }
	size := func(q *Query) any { return q.Size }
	nothing := func(*Scenario) {}
	shares := func(sc *Scenario) { sc.Services[0].Share = 3; sc.Services[1].Share = 1 }
	sizes := func(sc *Scenario) { sc.Services[0].Sizes = []int{2, 3}; sc.Services[1].Sizes = []int{2, 3} }
	process := func(sc *Scenario) { sc.Arrivals.Process = Constant }
	for name, c := range map[string]struct {
		change func(*Scenario)
		of     func(*Query) any
		same   bool
	}{
		"policy, times":     {func(sc *Scenario) { sc.Policy = "overlap" }, at, true},
		"shares, times":     {shares, at, true},
		"shares, services":  {shares, service, false},
		"sizes, services":   {sizes, service, true},
		"sizes, sizes":      {sizes, size, false},
		"process, services": {process, service, true},
		"process, sizes":    {process, size, true},
		"process, times":    {process, at, false},
		"clients, sizes":    {func(sc *Scenario) { sc.Clients.Leaving = 0.5 }, size, true},
	} {
		if same := slices.Equal(column(nothing, c.of), column(c.change, c.of)); same != c.same {
			t.Errorf("%s: the same is %v, want %v", name, same, c.same)
		}
	}
}

// TestCounting counts by hand: three queries at once and one later. Each takes
// 10 ms, so the third of the first is dropped.
func TestCounting(t *testing.T) {
	r := run(t, plainScenario(Query{At: 0}, Query{At: 0}, Query{At: 0}, Query{At: 40 * ms}))
	want := &Result{
		Policy: "fcfs", Devices: 1, Seconds: 0.05, Offered: 1,
		totals: totals{
			Queries: 4, Violations: 0.25, P99OverTarget: 0.8, ThroughputQPS: 60, GoodputQPS: 60, Answered: 3, Dropped: 1,
			LatencyMS: latency{Mean: 40.0 / 3, P50: 10, P99: 20, Max: 20},
		},
		Rounds: 3, Groups: []int{3}, Batches: 3, Busy: 0.6,
	}
	want.Services = []serviceResult{{"a", want.totals}}
	near := cmp.Comparer(func(a, b float64) bool { return a-b < 1e-9 && b-a < 1e-9 })
	if diff := cmp.Diff(want, r, near, cmp.AllowUnexported(Result{}, serviceResult{})); diff != "" {
		t.Error(diff)
	}
}

// TestTimesOfRounds adds what decisions and rounds take, and leaves out the
// decision that a plan has made.
func TestTimesOfRounds(t *testing.T) {
	sc := plainScenario(Query{}, Query{At: 5 * ms})
	sc.Services[0].Target = 100 * ms
	sc.DecisionTime, sc.RoundTime = 3*ms, 2*ms
	ends := func() (list []time.Duration) {
		rounds, _ := watch(t, sc)
		for _, r := range rounds {
			list = append(list, r.End)
		}
		return list
	}
	if got, want := ends(), []time.Duration{15 * ms, 30 * ms}; !slices.Equal(got, want) {
		t.Errorf("rounds end at %v, want %v", got, want)
	}
	sc.Plan = true
	if got, want := ends(), []time.Duration{15 * ms, 27 * ms}; !slices.Equal(got, want) {
		t.Errorf("planned rounds end at %v, want %v", got, want)
	}
}

// TestClientsLeave stops a batch at the next of its operators, of 1 ms each.
func TestClientsLeave(t *testing.T) {
	rounds, answers := watch(t, plainScenario(Query{Leaves: 3500 * time.Microsecond}, Query{At: ms}, Query{At: 2 * ms, Leaves: 3 * ms}))
	if rounds[0].End != 4*ms || rounds[0].Outcome.Spans[0].Reached != 4 || rounds[1].Start != 4*ms {
		t.Errorf("rounds %+v", rounds)
	}
	results := map[int]overlap.Result{}
	for _, a := range answers {
		results[a.Number] = a.Ended.Result
	}
	if want := map[int]overlap.Result{0: overlap.Cancelled, 1: overlap.Finished, 2: overlap.Cancelled}; !cmp.Equal(want, results) {
		t.Errorf("answers %v, want %v", results, want)
	}
}

// TestLeavingIsNoViolation unless the deadline has passed.
func TestLeavingIsNoViolation(t *testing.T) {
	sc := plainScenario(Query{Leaves: ms}, Query{At: 50 * ms})
	if r := run(t, sc); r.Cancelled != 1 || r.Violations != 0 {
		t.Errorf("cancelled %d, violations %v", r.Cancelled, r.Violations)
	}
	sc = plainScenario(Query{Leaves: 26 * ms})
	sc.Knows, sc.Device = KnowsNothing, newFormula(1, 0, 5*ms)
	if r := run(t, sc); r.Cancelled != 1 || r.Violations != 1 {
		t.Errorf("cancelled late %d, violations %v", r.Cancelled, r.Violations)
	}
}

// TestWorkersDie loses queries that may not be tried again, and finishes those
// that may.
func TestWorkersDie(t *testing.T) {
	sc := busyScenario("edf")
	sc.Check = true
	sc.Arrivals.QPS = 30
	sc.Services[0].Target, sc.Services[1].Target = time.Second, time.Second
	sc.Faults = faults{Every: 500 * ms, Restart: 10 * ms}
	lost := run(t, sc)
	sc.MaxRetries = 3
	again := run(t, sc)
	if lost.Failed < 20 || again.Failed >= lost.Failed/10 || again.Answered < sc.Queries*9/10 {
		t.Errorf("%d queries failed, with retries %d", lost.Failed, again.Failed)
	}
	sc.Faults = faults{Failing: 1}
	if r := run(t, sc); r.Failed != sc.Queries || r.Violations != 1 {
		t.Errorf("%d of %d failed where all spans do", r.Failed, sc.Queries)
	}
}

func TestScenarioFaults(t *testing.T) {
	for want, change := range map[string]func(*Scenario){
		"no device":                     func(sc *Scenario) { sc.Device = nil },
		"0 services":                    func(sc *Scenario) { sc.Services = nil },
		`unknown model "x": the device`: func(sc *Scenario) { sc.Services[0].Model = "x" },
		"batch size 64: model a was measured with 1 to 32": func(sc *Scenario) { sc.Services[0].Sizes = []int{64} },
		"batch size 33":              func(sc *Scenario) { sc.Services[0].MaxBatch = 33 },
		"sequence length 8: model":   func(sc *Scenario) { sc.Services[0].SeqLens = []int{8} },
		"share -1":                   func(sc *Scenario) { sc.Services[0].Share = -1 },
		"priority -1":                func(sc *Scenario) { sc.Services[0].Priority = -1 },
		"-1 queries":                 func(sc *Scenario) { sc.Queries = -1 },
		"no number of queries":       func(sc *Scenario) { sc.Queries = 0 },
		"2000 devices":               func(sc *Scenario) { sc.Devices = 2000 },
		`unknown dispatch "nearest"`: func(sc *Scenario) { sc.Dispatch = "nearest" },
		`unknown knowledge "some"`:   func(sc *Scenario) { sc.Knows = "some" },
		"a decision takes -1ns":      func(sc *Scenario) { sc.DecisionTime = -1 },
		"fail 2 of their spans":      func(sc *Scenario) { sc.Faults.Failing = 2 },
		"2 of the clients leave":     func(sc *Scenario) { sc.Clients.Leaving = 2 },
		`unknown policy "best"`:      func(sc *Scenario) { sc.Policy = "best" },
		"QoS target 0s":              func(sc *Scenario) { sc.Services[0].Target = 0 },
		"QoS target 2562047h":        func(sc *Scenario) { sc.Services[0].Target = 1<<63 - 1 },
		"name occurs twice":          func(sc *Scenario) { sc.Services[1].Name = "a"; sc.Services[1].Model = "b" },
		"trained on": func(sc *Scenario) {
			sc.DeviceName = "another"
			sc.Predictor = formulaPredictor(t, sc.Device.(*formula), 1)
		},
		"queries per second are": func(sc *Scenario) { sc.Arrivals.QPS = 1e6 },
	} {
		sc := busyScenario("edf")
		change(&sc)
		if _, err := Run(sc); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	sc := busyScenario("edf")
	sc.Arrivals.QPS = 1e6
	if _, err := Run(sc); !errors.Is(err, ErrLoad) {
		t.Errorf("far too much load: got %v", err)
	}
}

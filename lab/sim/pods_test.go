package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

// clusterOf returns the pods of a run before its first step, each of which takes 10 ms for a
// query with a target of 25 ms.
func clusterOf(t *testing.T, pods int, way string, queries ...Query) *cluster {
	t.Helper()
	sc := plainScenario(append(queries, Query{})...)
	sc.Devices, sc.Dispatch = pods, way
	return begun(t, sc).cluster
}

// TestWeights are queries per second over utilization, to which misses add; a pod whose
// reports are not used yet has the median.
func TestWeights(t *testing.T) {
	c := clusterOf(t, 5, ORCA)
	c.world.now = 3 * time.Second
	for i, rps := range []float64{100, 100, 50, 100, 0} {
		p := &c.pods[i]
		p.until, p.rps, p.busy, p.waits = c.world.now, rps, 0.5, 0.015 // and 10 ms for the query itself
	}
	c.pods[1].eps = 25                 // a quarter of the queries
	c.pods[3].since = c.world.now - ms // it has started just now
	c.pods[3].waits = 0                // or it would have the largest weight
	want := []float64{100, 80, 50, 0}  // utilization 1, 1.25, 1
	c.report()
	for i, w := range want {
		if got := c.pods[i].weight; i != 3 && math.Abs(got-w) > 1e-6 {
			t.Errorf("pod %d has weight %v, want %v", i, got, w)
		}
	}
	for i, part := range []float64{1, 0.8, 0.5, 0.8, 0.8} {
		if got, want := c.pods[i].stride, uint16(math.Round(part*maxStride)); got != want {
			t.Errorf("pod %d goes with %d, want %d", i, got, want)
		}
	}
	c.world.now += blackout
	c.weigh()
	if c.pods[3].stride != maxStride || c.pods[0].stride == maxStride {
		t.Errorf("after the blackout the reports of pod 3 are not used: %d, pod 0 has %d", c.pods[3].stride, c.pods[0].stride)
	}
}

// TestTurns gives a pod with half the weight half as many queries, evenly, and one that is
// not ready none.
func TestTurns(t *testing.T) {
	c := clusterOf(t, 3, ORCA)
	for i, weight := range []uint16{maxStride, maxStride / 2, maxStride} {
		c.pods[i].stride = weight
	}
	c.setReady(2, false)
	b, counts := c.balancers[0], make([]int, 3)
	for i := range 3000 {
		counts[b.choose(0)]++
		if i%3 == 2 && max(2*counts[1]-counts[0], counts[0]-2*counts[1]) > 3 {
			t.Fatalf("after %d queries: %v", i+1, counts)
		}
	}
	if counts[2] != 0 || counts[0] < 1998 || counts[0] > 2002 {
		t.Errorf("%v, want two for one", counts)
	}
}

// TestLesser chooses by what was reported and by what the balancer itself has sent and was
// not answered.
func TestLesser(t *testing.T) {
	c := clusterOf(t, 2, ORCATwo, Query{}, Query{})
	b := c.balancers[0]
	chosen := func(want int, why string) {
		t.Helper()
		if got := b.choose(0); got != want {
			t.Errorf("chose %d: %s", got, why)
		}
	}
	c.pods[0].waits, c.pods[1].waits = 0.030, 0.020
	c.report()
	chosen(1, "it has more to do")
	c.moved(0, 1, 1)
	c.moved(1, 1, 1)
	chosen(0, "it was sent two fewer")
	c.report()
	chosen(0, "a report does not answer queries")
	c.moved(0, 1, -1)
	c.moved(1, 1, -1)
	chosen(1, "both are answered")
	c.pods[0].waits = 0
	chosen(1, "this was not reported")
	c.report()
	chosen(0, "it was reported")
	c.pods[0].slow = 10
	chosen(1, "a query takes 100 ms on a slow pod")
}

// TestReports have queries avoid pods that are slow, if they are not too old.
func TestReports(t *testing.T) {
	violations := func(way string, age time.Duration, balancers int) float64 {
		sc := busyScenario("edf")
		sc.Devices, sc.Slow = 6, []float64{3, 3, 1, 1, 1, 1}
		sc.Dispatch, sc.ReportAge, sc.Balancers, sc.Arrivals.QPS, sc.Queries = way, age, balancers, 400, 8000
		return run(t, sc).Violations
	}
	blind, weighted := violations(RoundRobin, 0, 1), violations(ORCA, 0, 1)
	if weighted > 0.6*blind {
		t.Errorf("violations with reports %v, without %v", weighted, blind)
	}
	if old := violations(ORCA, time.Hour, 1); weighted > 0.6*old {
		t.Errorf("violations with reports that are 1 s old %v, 1 h %v", weighted, old)
	}
	if two := violations(ORCATwo, 0, 8); two > 0.6*blind {
		t.Errorf("violations of eight balancers with reports %v, of one without %v", two, blind)
	}
}

// TestPodsStart gets none a query before it is ready.
func TestPodsStart(t *testing.T) {
	for _, way := range []string{RoundRobin, Random, LeastLoaded, ORCA, ORCATwo} {
		sc := busyScenario("edf")
		sc.Devices, sc.Dispatch, sc.Pods = 4, way, pods{Starting: 2, StartUp: 5 * time.Second}
		later := map[int]bool{}
		_, answers := watch(t, sc)
		for _, a := range answers {
			if a.Query.At < 5*time.Second && a.Device >= 2 {
				t.Fatalf("%s: pod %d answered a query of %v", way, a.Device, a.Query.At)
			}
			later[a.Device] = true
		}
		if len(later) != 4 {
			t.Errorf("%s: pods %v have answered", way, later)
		}
	}
}

// TestNoPodIsReady refuses what comes until one is.
func TestNoPodIsReady(t *testing.T) {
	sc := plainScenario(Query{}, Query{At: 10 * ms})
	sc.Devices, sc.Pods = 2, pods{Starting: 2, StartUp: 5 * ms}
	_, answers := watch(t, sc)
	if answers[0].Refuse == nil || answers[0].InTime || !answers[1].InTime {
		t.Errorf("%+v", answers)
	}
}

// TestPodsDrain without losing a query, one after the other.
func TestPodsDrain(t *testing.T) {
	for _, way := range []string{RoundRobin, ORCA} {
		sc := busyScenario("edf")
		sc.Devices, sc.Dispatch, sc.Arrivals.QPS, sc.Check = 3, way, 150, true
		sc.Pods = pods{DrainEvery: time.Second, StartUp: 300 * ms}
		r := run(t, sc)
		if r.Failed != 0 || r.Pods.Retried != 0 || r.Pods.Drained < int(r.Seconds)-1 {
			t.Errorf("%s: %d failed, %+v in %v s", way, r.Failed, *r.Pods, r.Seconds)
		}
		if r.Violations > 0.02 {
			t.Errorf("%s: violations %v", way, r.Violations)
		}
	}
	c := clusterOf(t, 2, RoundRobin, Query{})
	c.world.arriving = 1
	if err := c.send(0); err != nil || c.pods[0].open != 1 {
		t.Fatalf("%v, %+v", err, c.pods[0])
	}
	c.drain()
	c.drain()
	if got := []bool{c.pods[0].ready, c.pods[1].ready, c.pods[0].draining, c.pods[1].draining}; !slices.Equal(got, []bool{false, true, true, false}) {
		t.Errorf("%v: the last pod that is ready may not drain", got)
	}
}

// TestPodsFail has what a pod had answered by others, once.
func TestPodsFail(t *testing.T) {
	sc := plainScenario(slices.Repeat([]Query{{}}, 4)...)
	sc.Services[0].Target = time.Second
	sc.Devices, sc.Pods = 2, pods{FailEvery: 15 * ms, StartUp: 10 * time.Second}
	rounds, answers := watch(t, sc)
	lost := answers[0].Device // at 10 ms both answer one; then one fails
	for _, r := range rounds {
		if r.End > 15*ms {
			lost = 1 - r.Device
		}
	}
	if len(answers) != 4 {
		t.Fatalf("%d answers", len(answers))
	}
	r := run(t, sc)
	if r.Pods.Failed < 1 || r.Pods.Retried < 1 {
		t.Errorf("%+v", *r.Pods)
	}
	for _, a := range answers {
		if a.Query.At == 0 && a.Device == lost && a.Ended.At > 15*ms && a.Ended.Result == overlap.Finished {
			t.Errorf("pod %d has failed and answers: %+v", lost, a)
		}
	}

	c := clusterOf(t, 3, RoundRobin, Query{})
	c.world.arriving, c.pods[0].gone, c.pods[2].gone = 1, true, true
	if err := c.send(0); err != nil || c.world.with[0] != answered || c.world.tally.services[0].Failed != 1 {
		t.Errorf("two pods were gone, and the query is sent to a third: %v, %+v", err, c.world.tally.services[0].totals)
	}
	if !c.pods[0].ready || !c.pods[2].ready {
		t.Error("a pod that has failed is not chosen any more before that is noticed")
	}
	c.report()
	if c.pods[0].ready || !c.pods[1].ready || c.pods[2].ready {
		t.Error("it is not noticed that no report comes")
	}
}

// TestPodSeeds runs scenarios that are made up, with pods that come and go: whatever
// happens, each query has one answer, and none fails but with a pod.
func TestPodSeeds(t *testing.T) {
	seeds := *poolSeeds
	if testing.Short() {
		seeds /= 10
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		sc, r := anyScenario(t, seed), rand.New(rand.NewPCG(seed, 777))
		sc.Devices, sc.Balancers = 1+r.IntN(5), 1+r.IntN(3)
		sc.Dispatch = []string{RoundRobin, Random, LeastLoaded, ORCA, ORCATwo}[r.IntN(5)]
		sc.ReportAge = time.Duration(1+r.IntN(500)) * ms
		sc.Faults = faults{}
		times := func(most int) time.Duration { return time.Duration(r.IntN(most)) * time.Millisecond }
		sc.Pods = pods{Starting: r.IntN(sc.Devices + 1), StartUp: times(300), DrainEvery: times(500), FailEvery: times(500)}
		count := map[int]int{}
		sc.Observer.Answer = func(a *Answer) {
			if count[a.Number]++; count[a.Number] > 1 || a.Ended.Result == overlap.Failed && sc.Pods.FailEvery == 0 {
				t.Errorf("seed %d: answer %d to query %d: %v", seed, count[a.Number], a.Number, a.Ended.Result)
			}
		}
		got, err := Run(sc)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if len(count) != got.Queries || got.Answered+got.Dropped+got.Failed+got.Cancelled != got.Queries {
			t.Errorf("seed %d: %d of %d queries are answered: %+v", seed, len(count), got.Queries, got.totals)
		}
	}
}

func TestPodsThatCannotBe(t *testing.T) {
	for want, change := range map[string]func(*Scenario){
		"-1 balancers":        func(sc *Scenario) { sc.Balancers = -1 },
		"reports are 1ns old": func(sc *Scenario) { sc.ReportAge = 1 },
		"3 pods start late":   func(sc *Scenario) { sc.Pods.Starting = 3 },
		"drain every 1ns":     func(sc *Scenario) { sc.Pods.DrainEvery = 1 },
		"fail every -1ns":     func(sc *Scenario) { sc.Pods.FailEvery = -1 },
		"that chooses a pod":  func(sc *Scenario) { sc.Pods.Starting, sc.Dispatch = 1, Pool },
		"no workers that die": func(sc *Scenario) { sc.Pods.Starting, sc.Faults.Every = 1, time.Second },
	} {
		sc := plainScenario(Query{})
		sc.Devices = 2
		change(&sc)
		if _, err := Run(sc); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

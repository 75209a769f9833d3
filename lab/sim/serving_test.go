package sim

import (
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// slower is a device that, once it serves, is slower by a factor than the formula says.
type slower struct {
	*formula
	by float64
}

func (d slower) Sample(g models.Group, r *rand.Rand) time.Duration {
	return time.Duration(d.by * float64(d.formula.Sample(g, r)))
}

// TestPredictorLearns finds the predictor wrong at first on a device that has
// become slower, and right later.
func TestPredictorLearns(t *testing.T) {
	f := newFormula(0.4, 0.02, 400*time.Microsecond, 300*time.Microsecond)
	sc := busyScenario("overlap")
	sc.Device, sc.Predictor = slower{f, 1.5}, formulaPredictor(t, f, 1)
	rounds, _ := watch(t, sc)
	off := func(list []Round) float64 {
		var m mean
		for _, r := range list {
			m.add(math.Abs(float64(r.Predicted.Latency)/float64(r.Took) - 1))
		}
		return m.value()
	}
	first, last := off(rounds[:20]), off(rounds[len(rounds)-200:])
	if first < 0.2 || last > 0.08 {
		t.Errorf("off by %.3f at first, by %.3f later", first, last)
	}
}

// TestGivenIsTheSame serves the queries of a scenario as given ones.
func TestGivenIsTheSame(t *testing.T) {
	sc := busyScenario("overlap")
	sc.Clients = clients{Leaving: 0.1}
	want := text(t, run(t, sc))
	queries, err := sc.Submissions()
	if err != nil {
		t.Fatal(err)
	}
	sc.Given, sc.Arrivals, sc.Queries, sc.Clients = queries, Arrivals{}, 0, clients{}
	if diff := cmp.Diff(want, text(t, run(t, sc))); diff != "" {
		t.Error(diff)
	}
}

// TestFullQueues refuses what does not fit, and counts it as dropped.
func TestFullQueues(t *testing.T) {
	sc := plainScenario(Query{}, Query{}, Query{}, Query{})
	sc.Services[0].QueueLimit, sc.Services[0].Target = 2, time.Second
	_, answers := watch(t, sc)
	refused := 0
	for _, a := range answers {
		if errors.Is(a.Refuse, overlap.ErrQueueFull) {
			refused++
			if a.Ended.Reason != overlap.ReasonQueueFull || a.InTime {
				t.Errorf("a refused query ends so: %+v", a)
			}
		}
	}
	if r := run(t, sc); refused != 2 || r.Dropped != 2 || r.Violations != 0.5 {
		t.Errorf("%d refused, %d dropped, violations %v", refused, r.Dropped, r.Violations)
	}
}

// TestRanks serves numbered priorities first, and best effort last.
func TestRanks(t *testing.T) {
	sc := plainScenario(Query{}, Query{Service: 1}, Query{Service: 2}, Query{Service: 3})
	sc.Device = newFormula(1, 0, ms, ms, ms, ms)
	sc.Services = []Service{
		{Name: "a", Target: time.Second, BestEffort: true}, {Name: "b", Target: time.Second},
		{Name: "c", Target: time.Second, Priority: 2}, {Name: "d", Target: time.Second, Priority: 1},
	}
	_, answers := watch(t, sc)
	var order []int
	for _, a := range answers {
		order = append(order, a.Number)
	}
	if diff := cmp.Diff([]int{3, 2, 1, 0}, order); diff != "" {
		t.Error(diff)
	}
}

// TestMerging runs queries that wait together as one batch, if that is allowed.
func TestMerging(t *testing.T) {
	sc := plainScenario(Query{}, Query{At: ms}, Query{At: ms}, Query{At: ms, Size: 2})
	sc.Services[0].Target = time.Second
	if r := run(t, sc); r.Batches != 4 || r.Merged != 0 {
		t.Errorf("without merging: %d batches, %d queries merged", r.Batches, r.Merged)
	}
	sc.Services[0].MaxBatch = 4
	rounds, _ := watch(t, sc)
	if r := run(t, sc); r.Batches != 2 || r.Merged != 3 || rounds[1].Spans[0].Size != 4 || rounds[1].Took != 25*ms {
		t.Errorf("with merging: %d batches, %d queries merged, rounds %+v", r.Batches, r.Merged, rounds)
	}
}

// TestAnswersInTime compares with the deadline to the nanosecond.
func TestAnswersInTime(t *testing.T) {
	for target, in := range map[time.Duration]bool{10 * ms: true, 10*ms - 1: false} {
		sc := plainScenario(Query{})
		sc.Services[0].Target, sc.Knows = target, KnowsNothing
		_, answers := watch(t, sc)
		if a := answers[0]; a.InTime != in || a.Ended.At != 10*ms || a.Due != target {
			t.Errorf("target %v: %+v", target, a)
		}
	}
}

// TestOfferedLoad is 1 where queries come as fast as they can be served one
// after another.
func TestOfferedLoad(t *testing.T) {
	sc := busyScenario("fcfs")
	sc.Services, sc.Device = []Service{{Name: "a", Target: time.Second}}, newFormula(1, 0, ms)
	sc.Arrivals = Arrivals{Process: Constant, QPS: 100}
	if r := run(t, sc); math.Abs(r.Offered-1) > 0.01 || r.Violations != 0 || r.Busy < 0.99 {
		t.Errorf("offered %v, violations %v, busy %v", r.Offered, r.Violations, r.Busy)
	}
	sc.Devices = 2
	if r := run(t, sc); math.Abs(r.Offered-0.5) > 0.01 || math.Abs(r.Busy-0.5) > 0.01 {
		t.Errorf("two devices: offered %v, busy %v", r.Offered, r.Busy)
	}
}

// TestRoundsTellWhatTheirDecisionsAsked counts calls of the predictor with one
// search way and with many.
func TestRoundsTellWhatTheirDecisionsAsked(t *testing.T) {
	perCall := func(ways int) float64 {
		sc := busyScenario("abacus")
		sc.Predictor, sc.Ways = formulaPredictor(t, sc.Device.(*formula), 1), ways
		rounds, _ := watch(t, sc)
		calls, groups := 0, 0
		for i := range rounds {
			calls, groups = calls+rounds[i].Calls, groups+rounds[i].Groups
			if rounds[i].Decision <= 0 {
				t.Fatalf("round %d was decided in %v", rounds[i].Number, rounds[i].Decision)
			}
		}
		return float64(groups) / float64(max(calls, 1))
	}
	if one, many := perCall(1), perCall(16); one < 1 || many <= one {
		t.Errorf("%.2f groups a call with one way, %.2f with sixteen", one, many)
	}
}

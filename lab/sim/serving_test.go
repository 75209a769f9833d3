package sim

import (
	"errors"
	"testing"
	"time"

	"github.com/overlapd/overlapd/overlap"
)

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

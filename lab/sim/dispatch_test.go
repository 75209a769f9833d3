package sim

import (
	"slices"
	"testing"
)

// devicesOf returns the device of each query.
func devicesOf(t *testing.T, sc Scenario) []int {
	t.Helper()
	list := make([]int, len(sc.Given))
	_, answers := watch(t, sc)
	for _, a := range answers {
		list[a.Number] = a.Device
	}
	return list
}

func TestDispatch(t *testing.T) {
	sc := plainScenario(Query{}, Query{}, Query{}, Query{At: 11 * ms}, Query{At: 12 * ms})
	sc.Devices = 2
	for way, want := range map[string][]int{
		RoundRobin:  {0, 1, 0, 1, 0},
		LeastLoaded: {0, 1, 0, 1, 0},
		Pool:        {0, 1, 0, 1, 0},
	} {
		sc.Dispatch = way
		if got := devicesOf(t, sc); !slices.Equal(got, want) {
			t.Errorf("%s: devices %v, want %v", way, got, want)
		}
	}
	sc = plainScenario(Query{}, Query{}, Query{}, Query{At: 15 * ms})
	sc.Devices, sc.Dispatch = 2, LeastLoaded
	if got, want := devicesOf(t, sc), []int{0, 1, 0, 1}; !slices.Equal(got, want) {
		t.Errorf("least loaded: devices %v, want %v", got, want)
	}
}

// TestBalancerKnowsOfAnswers: a query that comes when the only one before it is answered goes
// to the same device, which is the first of those with the fewest queries.
func TestBalancerKnowsOfAnswers(t *testing.T) {
	sc := plainScenario(Query{}, Query{At: 10 * ms})
	sc.Devices, sc.Dispatch = 2, LeastLoaded
	_, answers := watch(t, sc)
	if len(answers) != 2 || answers[0].Ended.At != 10*ms || answers[0].Device != 0 || answers[1].Device != 0 {
		t.Errorf("%+v", answers)
	}
}

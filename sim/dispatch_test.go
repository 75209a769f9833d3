package sim

import (
	"slices"
	"testing"
	"time"
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
		Central:     {0, 1, 0, 1, 0},
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

// TestBalance finds fewer violations the more a dispatcher knows, and each
// device busy.
func TestBalance(t *testing.T) {
	violations := map[string]float64{}
	for _, way := range dispatches {
		sc := busyScenario("edf")
		sc.Devices, sc.Dispatch, sc.Arrivals.QPS, sc.Check = 4, way, 480, true
		violations[way] = run(t, sc).Violations
	}
	if !(violations[Central] < violations[LeastLoaded] && violations[LeastLoaded] < violations[RoundRobin] && violations[RoundRobin] < violations[Random]) {
		t.Errorf("violations %v", violations)
	}
}

// TestCentralServesTheEarliestDeadline of all that wait, and answers those that
// leave while they do.
func TestCentralServesTheEarliestDeadline(t *testing.T) {
	sc := plainScenario(Query{}, Query{At: ms}, Query{At: 2 * ms, Service: 1}, Query{At: 3 * ms, Leaves: 4 * ms})
	sc.Device = newFormula(1, 0, ms, ms)
	sc.Services = append(sc.Services, Service{Name: "b", Target: 20 * ms})
	sc.Services[0].Target = 100 * ms
	sc.Dispatch, sc.Policy = Central, "clockwork"
	_, answers := watch(t, sc)
	var order []int
	for _, a := range answers {
		order = append(order, a.Number)
	}
	if want := []int{3, 0, 2, 1}; !slices.Equal(order, want) {
		t.Errorf("answered in the order %v, want %v", order, want)
	}
}

// TestCentralKeepsNoDeviceIdle gives the device two queries at a time. Once it
// has learned how much runs spread, Clockwork does not start the more urgent one,
// which might end late. The device runs the other one at once instead of waiting
// for the first to be hopeless.
func TestCentralKeepsNoDeviceIdle(t *testing.T) {
	sc := plainScenario()
	for i := range 200 {
		at := time.Duration(i) * 50 * ms
		sc.Given = append(sc.Given, Query{At: at, Size: 1}, Query{At: at, Size: 1, Service: 1})
	}
	sc.Device = newFormula(1, 0.05, ms, ms)
	sc.Services[0].Target = 10*ms + ms/5
	sc.Services = append(sc.Services, Service{Name: "b", Target: 40 * ms})
	sc.Dispatch, sc.Policy = Central, "clockwork"
	rounds, _ := watch(t, sc)
	last := rounds[len(rounds)-1]
	if last.Spans[0].Service != 1 || last.Start != sc.Given[len(sc.Given)-1].At {
		t.Errorf("the last round is of service %d and starts at %v, want service 1 at %v", last.Spans[0].Service, last.Start, sc.Given[len(sc.Given)-1].At)
	}
	if r := run(t, sc); r.Services[0].Dropped < 100 || r.Services[1].Violations != 0 {
		t.Errorf("%d of the urgent are dropped, %v of the others violated", r.Services[0].Dropped, r.Services[1].Violations)
	}
}

// TestCentralPassesLostWorkers: a device whose worker of a service is lost
// leaves the queries of that service to the others, and takes what it can run.
func TestCentralPassesLostWorkers(t *testing.T) {
	sc := plainScenario(Query{}, Query{Service: 1}, Query{})
	sc.Device = newFormula(1, 0, ms, ms)
	sc.Services = append(sc.Services, Service{Name: "b", Target: time.Second})
	sc.Dispatch = Central
	w, err := newWorld(&sc)
	if err != nil {
		t.Fatal(err)
	}
	for i := range sc.Given {
		w.central.add(i)
	}
	n := w.nodes[0]
	n.down[0] = true
	if number, ok := w.central.take(n); !ok || number != 1 {
		t.Errorf("took %d, %t, want the query of the other service", number, ok)
	}
	if number, ok := w.central.take(n); ok || w.central.Len() != 2 {
		t.Errorf("took %d for a lost worker, %d wait", number, w.central.Len())
	}
	w.now = sc.Services[0].Target
	if number, ok := w.central.take(n); !ok || number != 0 {
		t.Errorf("took %d, %t, want the first that is too late for any device", number, ok)
	}
}

package baselines

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	modelled "github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// affine predicts batches that take grow for each query and base besides.
type affine struct{ grow, base time.Duration }

func (a *affine) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		took := a.base + time.Duration(g.Spans[0].Size)*a.grow
		estimates[i] = models.Estimate{Latency: took, Bound: took}
	}
}

// turns drives a scheduler whose queries come at given times.
type turns struct {
	*testing.T
	s      *scheduler
	coming []models.Query
	now    time.Duration
	wake   time.Duration
	ends   []time.Duration // of the round of each device, overlap.Never without one
	log    strings.Builder
}

// newTurns returns a driver of one service on several devices.
func newTurns(t *testing.T, policy string, p overlap.Predictor, devices int, target time.Duration, coming []models.Query) *turns {
	return newTurnsOf(t, policy, p, devices, coming, models.Service{Name: "a", Operators: 1, QoSTarget: target, QueueLimit: 100, MaxBatch: 100})
}

func newTurnsOf(t *testing.T, policy string, p overlap.Predictor, devices int, coming []models.Query, services ...models.Service) *turns {
	t.Helper()
	s, err := newScheduler(overlap.Config{Devices: slices.Repeat([]overlap.Predictor{p}, devices), Services: services}, policyNamed(policy))
	if err != nil {
		t.Fatal(err)
	}
	return &turns{T: t, s: s, coming: coming, ends: slices.Repeat([]time.Duration{overlap.Never}, devices)}
}

// run goes on until a time, and returns what has started and what was dropped.
func (w *turns) run(until time.Duration) string {
	w.log.Reset()
	for w.now < until && (len(w.coming) > 0 || len(w.s.queries) > 0) {
		w.step()
		next := min(w.wake, slices.Min(w.ends))
		if len(w.coming) > 0 {
			next = min(next, w.coming[0].Arrival)
		}
		w.now = max(w.now, next)
	}
	return w.log.String()
}

func (w *turns) event(e overlap.Event) {
	if err := w.s.Step(w.now, &e); err != nil {
		w.Fatal(err)
	}
}

func (w *turns) step() {
	for i, end := range w.ends {
		if end <= w.now {
			w.ends[i] = overlap.Never
			r := &w.s.devices[i].round
			w.event(overlap.Event{Kind: overlap.Finish, Outcome: models.Outcome{Round: r.Number, Device: i, Spans: []models.SpanOutcome{{Span: r.Spans[0], Reached: 1}}}})
		}
	}
	for len(w.coming) > 0 && w.coming[0].Arrival <= w.now {
		w.event(overlap.Event{Kind: overlap.Arrive, Query: w.coming[0]})
		w.coming = w.coming[1:]
	}
	var dropped []models.QueryID
	at := float64(w.now) / float64(time.Millisecond)
	for w.wake = w.now; w.wake <= w.now; {
		r := w.s.Ready(w.now)
		w.wake = r.Wake
		if r.Round != nil {
			q := r.Round.Queries[0]
			fmt.Fprintf(&w.log, "%.2f GPU %d: R%d-R%d\n", at, r.Round.Device+1, q[0], q[len(q)-1])
			w.ends[r.Round.Device] = w.now + r.Round.Predicted.Latency
		}
		for _, a := range r.Answers {
			if a.Result != overlap.Finished {
				dropped = append(dropped, a.Query)
			}
		}
		if err := w.s.Check(); err != nil {
			w.Fatal(err)
		}
	}
	for _, id := range dropped {
		fmt.Fprintf(&w.log, "%.2f R%d dropped\n", at, id)
	}
}

// uniform returns queries that come every 0.75 ms and must be answered in 12 ms, but for
// some that are missing.
func uniform(missing ...models.QueryID) (coming []models.Query) {
	for id := models.QueryID(1); id <= 40; id++ {
		at := time.Duration(id-1) * 750 * time.Microsecond
		if !slices.Contains(missing, id) {
			coming = append(coming, models.Query{ID: id, Size: 1, Arrival: at, Deadline: at + 12*time.Millisecond})
		}
	}
	return coming
}

// The example of Symphony, section 3.3: figure 4, where devices take turns, and figure 5,
// where three queries are missing. Eager batches become ever smaller from there on, until
// queries are dropped; those that are held back take turns again.
func TestSymphony(t *testing.T) {
	p := &affine{grow: time.Millisecond, base: 5 * time.Millisecond}
	const target, slot = 12 * time.Millisecond, 750 * time.Microsecond
	check := func(what, got, want string) {
		t.Helper()
		if want = strings.TrimLeft(want, "\n"); got != want {
			t.Errorf("%s:\n%swant:\n%s", what, got, want)
		}
	}
	check("figure 4", newTurns(t, "deferred", p, 3, target, uniform()).run(24*time.Millisecond), `
2.25 GPU 1: R1-R4
5.25 GPU 2: R5-R8
8.25 GPU 3: R9-R12
11.25 GPU 1: R13-R16
14.25 GPU 2: R17-R20
17.25 GPU 3: R21-R24
20.25 GPU 1: R25-R28
23.25 GPU 2: R29-R32
`)
	check("figure 5b", newTurns(t, "deferred", p, 3, target, uniform(13, 14, 15)).run(29*time.Millisecond), `
2.25 GPU 1: R1-R4
5.25 GPU 2: R5-R8
8.25 GPU 3: R9-R12
13.50 GPU 1: R16-R19
16.50 GPU 2: R20-R23
19.50 GPU 3: R24-R27
22.50 GPU 1: R28-R31
25.50 GPU 2: R32-R35
28.50 GPU 3: R36-R39
`)
	w := newTurns(t, "deferred", p, 3, target, uniform(13, 14, 15))
	w.run(15 * slot)
	w.s.policy = eager{}
	for _, sv := range w.s.services {
		sv.offer.invalidate()
	}
	check("figure 5a", w.run(overlap.Never), `
11.25 GPU 1: R16-R16
14.25 GPU 2: R17-R20
17.25 GPU 1: R21-R24
18.00 GPU 3: R25-R25
23.25 GPU 2: R26-R27
24.00 GPU 3: R28-R30
26.25 GPU 1: R31-R33
30.25 GPU 2: R34-R34
31.50 R35 dropped
32.00 GPU 3: R36-R36
33.00 R37 dropped
33.75 R38 dropped
34.25 GPU 1: R39-R39
35.25 R40 dropped
`)
}

// TestDeferredSharesThePool: of 16 devices eight services have two each, and so must not
// give up first queries for the sake of batches as large as those of one that has all 16.
func TestDeferredSharesThePool(t *testing.T) {
	sc := sim.Scenario{
		Policy: "deferred", Scheduler: New, Device: linearDevice(t, "a,2,9\n"), Devices: 16, Dispatch: sim.Pool, Queries: 20_000,
		Arrivals: sim.Arrivals{Process: sim.Gamma, QPS: 4500, Shape: 0.1},
	}
	for i := range 8 {
		sc.Services = append(sc.Services, sim.Service{Name: fmt.Sprint(i), Model: "a", Target: 50 * time.Millisecond, MaxBatch: 20})
	}
	if r := run(t, sc); r.Violations > 0.0115 {
		t.Errorf("%.2f %% violations, want at most 1.15 %%", 100*r.Violations)
	}
}

// TestDeferredWindow: a batch of one may start once one of two would be late, which takes
// 30 ms. Two services wait for each other where they have one device: the batch may start
// earlier by the 30 ms that another one takes.
func TestDeferredWindow(t *testing.T) {
	p := &affine{grow: 10 * time.Millisecond, base: 10 * time.Millisecond}
	for devices, want := range map[int]string{2: "170.00 GPU 1: R1-R1\n", 1: "140.00 GPU 1: R1-R1\n"} {
		var services []models.Service
		for i, name := range []string{"a", "b"} {
			services = append(services, models.Service{ID: models.ServiceID(i), Name: name, Operators: 1, QoSTarget: time.Second, QueueLimit: 100, MaxBatch: 4})
		}
		coming := []models.Query{{ID: 1, Size: 1, Deadline: 200 * time.Millisecond}}
		if got := newTurnsOf(t, "deferred", p, devices, coming, services...).run(time.Second); got != want {
			t.Errorf("on %d devices %q, want %q", devices, got, want)
		}
	}
}

// TestLadder: a service on the ladder starts batches of 1, 2, 4 and 8.
func TestLadder(t *testing.T) {
	p := &affine{grow: time.Millisecond, base: 5 * time.Millisecond}
	var coming []models.Query
	for id := range models.QueryID(3) {
		coming = append(coming, models.Query{ID: id + 1, Size: 1, Deadline: time.Second})
	}
	m := models.Service{Name: "a", Operators: 1, QoSTarget: time.Second, QueueLimit: 100, MaxBatch: 8, Ladder: true}
	want := "0.00 GPU 1: R1-R2\n7.00 GPU 1: R3-R3\n"
	if got := newTurnsOf(t, "eager", p, 1, coming, m).run(time.Second); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNames: each name makes a scheduler, other names make those of package overlap, and
// what these policies have not is refused.
func TestNames(t *testing.T) {
	c := overlap.Config{
		Devices:  []overlap.Predictor{&affine{base: time.Millisecond}},
		Services: []models.Service{{Name: "a", Operators: 1, QoSTarget: time.Second, QueueLimit: 1}},
	}
	for _, p := range append(Policies(), named{Name: "timeout:0.5", Summary: "."}) {
		c.Policy = p.Name
		if s, err := New(c); err != nil || s.(*scheduler) == nil || !strings.HasSuffix(p.Summary, ".") {
			t.Errorf("%s: New() = %T, %v, want a scheduler; its summary %q must end with a full stop", p.Name, s, err, p.Summary)
		}
	}
	for _, name := range []string{"timeout:2", "timeout:", "best"} {
		c.Policy = name
		if _, err := New(c); err == nil || !strings.Contains(err.Error(), "unknown policy") {
			t.Errorf("%s: New() = %v, want that it is unknown", name, err)
		}
	}
	c.Policy = "edf"
	if s, err := New(c); err != nil || s.(*overlap.Scheduler) == nil {
		t.Errorf("New() = %T, %v, want the production scheduler", s, err)
	}
	c.Policy = "flex"
	for what, change := range map[string]func(*models.Service){
		"choose overlap, edf or reactive": func(m *models.Service) {
			m.Pipelines = []models.Pipeline{{Batch: 1, Stages: []models.Stage{{End: 1, Devices: []int{0}}}}}
		},
		"has no variants": func(m *models.Service) { m.Of = "f" },
		"no name":         func(m *models.Service) { m.Name = "" },
	} {
		bad := c
		bad.Services = slices.Clone(c.Services)
		change(&bad.Services[0])
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("New() = %v, want %q in it", err, what)
		}
	}
}

func linearDevice(t testing.TB, rows string) *modelled.Model {
	t.Helper()
	p, err := modelled.Linear("l", rows)
	if err != nil {
		t.Fatal(err)
	}
	d, err := modelled.NewModel(p)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func run(t testing.TB, sc sim.Scenario) *sim.Result {
	t.Helper()
	r, err := sim.Run(sc)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

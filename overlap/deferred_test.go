package overlap

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// affine predicts batches that take grow for each query and base besides.
type affine struct{ grow, base time.Duration }

func (a *affine) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		took := time.Duration(0)
		for _, s := range g.Spans {
			took += a.base + time.Duration(s.Size)*a.grow
		}
		estimates[i] = models.Estimate{Latency: took, Bound: took}
	}
}

// turns drives a scheduler of one service, whose queries come at given times.
type turns struct {
	*testing.T
	s      *Scheduler
	config Config
	coming []models.Query
	ends   map[int]time.Duration // of the round of each device that runs one
	log    strings.Builder
}

func newTurns(t *testing.T, policy string, p Predictor, devices int, target time.Duration, coming []models.Query) *turns {
	c := Config{
		Policy: policy, Devices: slices.Repeat([]Predictor{p}, devices),
		Services: []models.Service{{Name: "a", Operators: 1, QoSTarget: target, QueueLimit: 100, MaxBatch: 100}},
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &turns{T: t, s: s, config: c, coming: coming, ends: map[int]time.Duration{}}
}

// change goes on under another policy.
func (w *turns) change(policy string) {
	w.config.Policy = policy
	var err error
	if w.s, err = Restore(w.config, w.s.Snapshot()); err != nil {
		w.Fatal(err)
	}
}

// run goes on until a time, and returns what has started and what was dropped.
func (w *turns) run(until time.Duration) string {
	w.log.Reset()
	for now := w.s.now; now < until && (len(w.coming) > 0 || !w.s.Idle()); now = max(now, w.next()) {
		w.step(now)
	}
	return w.log.String()
}

// next returns when something happens.
func (w *turns) next() time.Duration {
	next := forever
	for _, end := range w.ends {
		next = min(next, end)
	}
	if len(w.coming) > 0 {
		next = min(next, w.coming[0].Arrival)
	}
	if at, ok := w.s.Wake(); ok {
		next = min(next, at)
	}
	return next
}

func (w *turns) step(now time.Duration) {
	for device := range w.s.devices {
		if end, busy := w.ends[device]; busy && end <= now {
			delete(w.ends, device)
			r := w.s.devices[device].round
			if err := w.s.Finish(now, models.Outcome{Round: r.Number, Device: device, Spans: []models.SpanOutcome{{Span: r.Spans[0], Reached: 1}}}); err != nil {
				w.Fatal(err)
			}
		}
	}
	for len(w.coming) > 0 && w.coming[0].Arrival <= now {
		if err := w.s.Arrive(now, w.coming[0]); err != nil {
			w.Fatal(err)
		}
		w.coming = w.coming[1:]
	}
	at := float64(now) / float64(time.Millisecond)
	for {
		r, ok := w.s.Next(now)
		if !ok {
			break
		}
		q := r.Queries[0]
		fmt.Fprintf(&w.log, "%.2f GPU %d: R%d-R%d\n", at, r.Device+1, q[0], q[len(q)-1])
		w.ends[r.Device] = now + r.Predicted.Latency
	}
	for _, a := range w.s.Answers() {
		if a.Result != Finished {
			fmt.Fprintf(&w.log, "%.2f R%d dropped\n", at, a.Query)
		}
	}
	if err := w.s.Check(); err != nil {
		w.Fatal(err)
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
	w.change("eager")
	check("figure 5a", w.run(forever), `
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

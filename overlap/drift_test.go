package overlap_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
)

const (
	target   = 14 * time.Millisecond
	arrivals = 55.0 // queries per second
	backlog  = 3    // queries that wait, of the best-effort service
)

// drifting is a scheduler with a device that takes what the predictor says at
// first, times its slowness. Two services have QoS targets; a third one fills
// the headroom that they leave, up to what is predicted.
type drifting struct {
	t        *testing.T
	s        *overlap.Scheduler
	services []models.Service
	device   *predictor.Predictor
	told     *predictor.Predictor // of what groups took, nil if none is
	random   *rand.Rand
	slowness float64
	rate     float64 // queries per second
	now      time.Duration
	next     time.Duration // arrival
	id       models.QueryID
	groups   int
	late     []bool // of each query that ended: it was late, or dropped

	deadlines map[models.QueryID]time.Duration
}

func newDrifting(t *testing.T, margin bool) *drifting {
	used := newPredictor(t, 3, 32, 32)
	d := &drifting{
		t: t, services: services(3, maxSize, target), device: newPredictor(t, 3, 32, 32),
		random: rand.New(rand.NewPCG(7, 7)), slowness: 1, rate: arrivals,
		deadlines: map[models.QueryID]time.Duration{},
	}
	d.services[2].BestEffort = true
	if margin {
		d.told = used
	}
	var err error
	if d.s, err = overlap.New(overlap.Config{Services: d.services, Policy: "overlap", Devices: []overlap.Predictor{used}}); err != nil {
		t.Fatal(err)
	}
	for range backlog {
		d.fill()
	}
	return d
}

func (d *drifting) fill() {
	d.id++
	q := models.Query{ID: d.id, Service: 2, Size: maxSize, Arrival: d.now, Deadline: d.now + time.Hour}
	if err := d.s.Arrive(d.now, q); err != nil {
		d.t.Fatal(err)
	}
}

// run lets a number of groups run and returns the part of the queries that
// ended meanwhile in violation of their QoS target.
func (d *drifting) run(groups int) float64 {
	from := len(d.late)
	for last := d.groups + groups; d.groups < last; {
		d.arrive()
		r, ok := d.s.Next(d.now)
		if d.answers(); !ok {
			d.now = d.next
			continue
		}
		d.finish(&r)
	}
	violations := 0
	for _, late := range d.late[from:] {
		if late {
			violations++
		}
	}
	return float64(violations) / float64(len(d.late)-from)
}

// arrive queues what has arrived by now.
func (d *drifting) arrive() {
	for d.next <= d.now {
		d.id++
		sv := &d.services[d.random.IntN(2)]
		q := models.Query{ID: d.id, Service: sv.ID, Size: 1, Arrival: d.next, Deadline: d.next + sv.QoSTarget}
		d.deadlines[q.ID] = q.Deadline
		if err := d.s.Arrive(d.next, q); err != nil {
			d.late = append(d.late, true)
		}
		d.next += time.Duration(d.random.ExpFloat64() / d.rate * float64(time.Second))
	}
}

// finish ends a round that takes as long as the device needs, with some noise.
func (d *drifting) finish(r *overlap.Round) {
	d.groups++
	e := []models.Estimate{{}}
	d.device.Predict([]models.Group{r.Group}, e)
	took := time.Duration(float64(e[0].Latency) * d.slowness * math.Exp(0.01*d.random.NormFloat64()))
	end := d.now + took
	for d.next < end { // they arrive while it runs
		d.now = d.next
		d.arrive()
		d.s.Advance(d.now)
	}
	d.now = end
	o := models.Outcome{Round: r.Number, Took: took}
	for _, s := range r.Group.Spans {
		o.Spans = append(o.Spans, models.SpanOutcome{Span: s, Reached: s.End, Took: took})
	}
	if d.told != nil {
		if err := d.told.Observe(d.now, r.Group, took); err != nil {
			d.t.Fatal(err)
		}
	}
	if err := d.s.Finish(d.now, o); err != nil {
		d.t.Fatal(err)
	}
	d.answers()
}

func (d *drifting) answers() {
	for _, a := range d.s.Answers() {
		if d.services[a.Service].BestEffort {
			d.fill()
			continue
		}
		d.late = append(d.late, a.Result != overlap.Finished || a.At > d.deadlines[a.Query])
	}
}

// A device that turns 25 % slower: where the margin follows what is measured,
// violations are back to within one point of before after 200 groups. Where it
// does not, they stay, or this test shows nothing.
func TestDrift(t *testing.T) {
	const settle, groups, many = 1000, 200, 2000
	for _, margin := range []bool{true, false} {
		d := newDrifting(t, margin)
		d.run(settle)
		before := d.run(many)
		d.slowness = 1.25
		during, after := d.run(groups), d.run(many)
		t.Logf("margin %v: violations %.1f %% before, %.1f %% in the first %d groups, %.1f %% then",
			margin, 100*before, 100*during, groups, 100*after)
		if back := after <= before+0.01; back != margin {
			t.Errorf("margin %v: violations are back is %v", margin, back)
		}
	}
}

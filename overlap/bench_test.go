package overlap_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// crowd keeps queries waiting in every service of a scheduler.
type crowd struct {
	t        testing.TB
	s        *overlap.Scheduler
	services []models.Service
	random   *rand.Rand
	now      time.Duration
	id       models.QueryID
	outcome  models.Outcome
	took     []time.Duration // by the clock of the machine, of each decision
	asked    struct{ calls, groups int }
	explain  bool
	plans    bool // decide ahead
}

// waiting is how many queries of each service wait when a decision is made.
const waiting = 4

func newCrowd(t testing.TB, policy string, ways int, p overlap.Predictor) *crowd {
	c := &crowd{t: t, services: services(4, maxSize, 50*time.Millisecond), random: rand.New(rand.NewPCG(1, 1))}
	var err error
	c.s, err = overlap.New(overlap.Config{Services: c.services, Policy: policy, Predictor: p, Ways: ways})
	if err != nil {
		t.Fatal(err)
	}
	for range waiting {
		for i := range c.services {
			c.arrive(models.ServiceID(i))
		}
	}
	return c
}

// arrive queues a query that has some of its time left.
func (c *crowd) arrive(id models.ServiceID) {
	c.id++
	slack := time.Duration(c.random.Int64N(int64(c.services[id].QoSTarget)))
	q := models.Query{ID: c.id, Service: id, Size: 1, Arrival: c.now, Deadline: c.now + 10*time.Millisecond + slack}
	if err := c.s.Arrive(c.now, q); err != nil {
		c.t.Fatal(err)
	}
}

// round runs one group and replaces what has ended: at once, or if plans are
// made, when the next one runs.
func (c *crowd) round() {
	start := time.Now()
	r, ok := c.s.Next(c.now)
	c.took = append(c.took, time.Since(start))
	if !ok { // it has dropped all there was
		c.replace()
		return
	}
	if c.explain {
		e := c.s.Explain()
		c.asked.calls += e.Asked.Calls
		c.asked.groups += e.Asked.Groups
	}
	c.replace()
	if c.plans {
		c.s.Plan(c.now)
	}
	c.now += r.Predicted.Latency
	c.outcome.Round, c.outcome.Took, c.outcome.Spans = r.Number, r.Predicted.Latency, c.outcome.Spans[:0]
	for _, s := range r.Group.Spans {
		c.outcome.Spans = append(c.outcome.Spans, models.SpanOutcome{Span: s, Reached: s.End, Took: r.Predicted.Latency})
	}
	if err := c.s.Finish(c.now, c.outcome); err != nil {
		c.t.Fatal(err)
	}
	if !c.plans || r.Number%2 == 0 {
		c.replace()
	}
}

func (c *crowd) replace() {
	for _, a := range c.s.Answers() {
		c.arrive(a.Service)
	}
	c.s.Released()
}

// Four services, four ways, a network: deciding, ahead or not, does not
// allocate.
func TestDecisionDoesNotAllocate(t *testing.T) {
	for _, policy := range []string{"overlap", "abacus"} {
		c := newCrowd(t, policy, 4, newPredictor(t, 4, 32, 32, 32))
		c.took, c.plans, c.explain = make([]time.Duration, 0, 1<<16), true, true
		for range 2000 {
			c.round()
		}
		if n := testing.AllocsPerRun(1000, c.round); n != 0 {
			t.Errorf("%s: a round allocates %v times", policy, n)
		}
		if m := c.s.Metrics(); m.Plans.Kept == 0 || m.Plans.Overturned == 0 {
			t.Errorf("%s: %+v: not all was tried", policy, m.Plans)
		}
	}
}

// BenchmarkDecision tells the time of Next, arrivals and outcomes excluded,
// over four services with a network of 3 layers of 32: the whole decision, as
// it is where no plan was made ahead. Figure 23 shows the same by ways. What
// the predictor has no part in is told by "scheduler", and by "planned" what
// is left of Next where every other plan holds.
func BenchmarkDecision(b *testing.B) {
	for _, policy := range []string{"overlap", "abacus"} {
		for _, ways := range []int{1, 2, 4, 8, 16} {
			b.Run(fmt.Sprintf("%s/%dways", policy, ways), func(b *testing.B) {
				decide(b, newCrowd(b, policy, ways, newPredictor(b, 4, 32, 32, 32)))
			})
		}
		b.Run(policy+"/scheduler", func(b *testing.B) {
			decide(b, newCrowd(b, policy, 4, free{}))
		})
		b.Run(policy+"/planned", func(b *testing.B) {
			c := newCrowd(b, policy, 4, newPredictor(b, 4, 32, 32, 32))
			c.plans = true
			decide(b, c)
		})
	}
}

func decide(b *testing.B, c *crowd) {
	c.explain = true
	for range 1000 {
		c.round()
	}
	c.took, c.asked.calls, c.asked.groups = make([]time.Duration, 0, b.N), 0, 0
	b.ReportAllocs()
	for b.Loop() {
		c.round()
	}
	n := float64(len(c.took))
	slices.Sort(c.took)
	micros := func(quantile float64) float64 {
		return float64(c.took[int(quantile*(n-1))]) / 1e3
	}
	b.ReportMetric(micros(0.5), "µs/decision")
	b.ReportMetric(micros(0.99), "µs/p99")
	b.ReportMetric(float64(c.asked.calls)/n, "calls/decision")
	b.ReportMetric(float64(c.asked.groups)/n, "groups/decision")
}

// free predicts what a device with spare room takes, at hardly any cost.
type free struct{}

func (free) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		var sum, longest float64
		for _, s := range g.Spans {
			micros := float64(s.Len()) * operatorMicros(s.Size)
			sum += micros
			longest = max(longest, micros)
		}
		took := time.Duration(1000 * max(longest, 0.7*sum))
		estimates[i] = models.Estimate{Latency: took, Bound: took * 21 / 20}
	}
}

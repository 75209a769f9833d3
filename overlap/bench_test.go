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

// newCrowd has four services, which promise 50 ms.
func newCrowd(t testing.TB, policy string, ways int, p overlap.Predictor) *crowd {
	return newCrowdOf(t, policy, ways, p, 4, 4*waiting, 50*time.Millisecond, 1)
}

func newCrowdOf(t testing.TB, policy string, ways int, p overlap.Predictor, n, waiting int, target time.Duration, devices int) *crowd {
	c := &crowd{t: t, services: services(n, maxSize, target), random: rand.New(rand.NewPCG(1, 1))}
	for i := range c.services {
		c.services[i].QueueLimit = max(2*waiting, 100)
	}
	var err error
	c.s, err = overlap.New(overlap.Config{Services: c.services, Policy: policy, Devices: slices.Repeat([]overlap.Predictor{p}, devices), Ways: ways})
	if err != nil {
		t.Fatal(err)
	}
	for i := range waiting {
		c.arrive(models.ServiceID(i % n))
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
		c.s.Advance(c.now)
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

// BenchmarkScale is how long a scheduler takes for each of its events, by the number
// of its services and of the queries that wait. Of these about half can be served in
// time, so that there is something to postpone; a plan is made after each arrival and
// departure, as a daemon does under load. "expire" is for one query that is past its
// deadline. Median and p99 of each, in microseconds.
func BenchmarkScale(b *testing.B) {
	for _, policy := range []string{"overlap", "edf", "abacus"} {
		for _, n := range []int{2, 4, 8, 16, 32, 64} {
			for _, waiting := range []int{10, 100, 1000, 10_000, 100_000} {
				b.Run(fmt.Sprintf("%s/%dservices/%dwaiting", policy, n, waiting), func(b *testing.B) {
					target := max(50*time.Millisecond, time.Duration(waiting)*time.Millisecond)
					s := &scale{crowd: newCrowdOf(b, policy, 4, newPredictor(b, n, 32, 32, 32), n, waiting, target, 1)}
					for range 100 {
						s.turn()
					}
					s.took = [events][]time.Duration{}
					for b.Loop() {
						s.turn()
					}
					s.report(b)
				})
			}
		}
	}
}

// scale is a crowd of which the time of every event is taken.
type scale struct {
	*crowd
	took [events][]time.Duration
}

// The events of a scheduler, in the order in which a turn has them.
const (
	onNext = iota
	onPlan
	onArrive
	onCancel
	onExpire
	onFinish
	events
)

func (s *scale) time(event int, do func()) {
	start := time.Now()
	do()
	s.took[event] = append(s.took[event], time.Since(start))
}

// turn runs a round, while which queries arrive, leave and expire.
func (s *scale) turn() {
	var r overlap.Round
	var ok bool
	s.time(onNext, func() { r, ok = s.s.Next(s.now) })
	for _, a := range s.s.Answers() {
		s.time(onArrive, func() { s.arrive(a.Service) })
		s.time(onPlan, func() { s.s.Advance(s.now) })
	}
	gone := s.id - models.QueryID(s.random.IntN(8)) // of the latest, most of which wait
	s.time(onCancel, func() { s.s.Cancel(s.now, gone) })
	s.time(onPlan, func() { s.s.Advance(s.now) })
	if at, waits := s.s.Wake(); ok && waits && at < s.now+r.Predicted.Latency {
		s.now = max(s.now, at)
		s.time(onExpire, func() { s.s.Next(s.now) })
	}
	if !ok {
		return
	}
	s.now = max(s.now, r.Start+r.Predicted.Latency)
	s.outcome.Round, s.outcome.Took, s.outcome.Spans = r.Number, r.Predicted.Latency, s.outcome.Spans[:0]
	for _, span := range r.Group.Spans {
		s.outcome.Spans = append(s.outcome.Spans, models.SpanOutcome{Span: span, Reached: span.End, Took: r.Predicted.Latency})
	}
	s.time(onFinish, func() {
		if err := s.s.Finish(s.now, s.outcome); err != nil {
			s.t.Fatal(err)
		}
	})
	s.s.Released()
}

func (s *scale) report(b *testing.B) {
	b.ReportMetric(0, "ns/op")
	for event, name := range [events]string{"next", "plan", "arrive", "cancel", "expire", "finish"} {
		took := s.took[event]
		if len(took) == 0 {
			continue
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2])/1e3, "µs-"+name)
		b.ReportMetric(float64(took[len(took)*99/100])/1e3, "µs-"+name+"-p99")
	}
}

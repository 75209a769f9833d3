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

// shares keeps all units of a device busy, where groups are formed or not.
type shares struct {
	*crowd
	running []overlap.Round
}

func newShares(t testing.TB, n, waiting, units int, groups bool) *shares {
	c := &crowd{t: t, services: services(n, maxSize, 2*time.Second), random: rand.New(rand.NewPCG(1, 1))}
	for i := range c.services {
		c.services[i].QueueLimit = max(2*waiting, 100)
	}
	var err error
	c.s, err = overlap.New(overlap.Config{Services: c.services, Policy: "overlap", Devices: []overlap.Predictor{sharing{}}, Units: []int{units}, Alone: []bool{!groups}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range waiting {
		c.arrive(models.ServiceID(i % n))
	}
	return &shares{crowd: c}
}

// sharing predicts that on one of a few units a span takes a little less than the more there are.
type sharing struct{}

func (sharing) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		took := time.Duration(0)
		for _, s := range g.Spans {
			alone := time.Duration(1000 * float64(s.Len()) * operatorMicros(s.Size))
			if s.Share > 0 {
				alone += 9 * alone / time.Duration(s.Share)
			}
			took += alone * 4 / time.Duration(3+len(g.Spans))
		}
		estimates[i] = models.Estimate{Latency: took, Bound: took * 21 / 20}
	}
}

// turn starts rounds until no unit is free, and ends the one that ends first.
func (c *shares) turn() {
	for {
		start := time.Now()
		r, ok := c.s.Next(c.now)
		c.took = append(c.took, time.Since(start))
		c.replace()
		if !ok {
			break
		}
		c.running = append(c.running, r)
	}
	if len(c.running) == 0 {
		return
	}
	first := 0
	for i := range c.running {
		if c.running[i].Start+c.running[i].Predicted.Latency < c.running[first].Start+c.running[first].Predicted.Latency {
			first = i
		}
	}
	r := c.running[first]
	c.running = slices.Delete(c.running, first, first+1)
	c.now = max(c.now, r.Start+r.Predicted.Latency)
	c.outcome.Round, c.outcome.Took, c.outcome.Spans = r.Number, r.Predicted.Latency, c.outcome.Spans[:0]
	for _, s := range r.Group.Spans {
		c.outcome.Spans = append(c.outcome.Spans, models.SpanOutcome{Span: s, Reached: s.End, Took: r.Predicted.Latency})
	}
	if err := c.s.Finish(c.now, c.outcome); err != nil {
		c.t.Fatal(err)
	}
	c.replace()
}

// BenchmarkShares is how long a decision takes for a device of so many units, all of which are busy.
func BenchmarkShares(b *testing.B) {
	for _, units := range []int{2, 8, 64} {
		for _, n := range []int{2, 64} {
			for _, groups := range []bool{false, true} {
				b.Run(fmt.Sprintf("%dunits/%dservices/groups=%t", units, n, groups), func(b *testing.B) {
					c := newShares(b, n, 1000, units, groups)
					for range 300 {
						c.turn()
					}
					c.took = c.took[:0]
					b.ReportAllocs()
					for b.Loop() {
						c.turn()
					}
					slices.Sort(c.took)
					b.ReportMetric(float64(c.took[len(c.took)/2])/1e3, "µs/decision")
					b.ReportMetric(float64(c.took[len(c.took)*99/100])/1e3, "µs/p99")
				})
			}
		}
	}
}

// TestSharesDoNotAllocate: nor do decisions on a device of several units.
func TestSharesDoNotAllocate(t *testing.T) {
	for _, groups := range []bool{false, true} {
		c := newShares(t, 8, 100, 8, groups)
		c.took = make([]time.Duration, 0, 1<<17)
		for range 3000 {
			c.turn()
		}
		if n := testing.AllocsPerRun(1000, c.turn); n != 0 {
			t.Errorf("with groups %t, a turn allocates %v times", groups, n)
		}
	}
}

// spoiled predicts that a span takes twice as long on all units as on one.
type spoiled struct{}

func (spoiled) Predict(groups []models.Group, estimates []models.Estimate) {
	sharing{}.Predict(groups, estimates)
	for i, g := range groups {
		if g.Spans[0].Share == 0 {
			estimates[i].Latency, estimates[i].Bound = 20*estimates[i].Latency, 20*estimates[i].Bound
		}
	}
}

// A model that is thought to be slower on all units has them again after some batches: nobody knows
// better until it does.
func TestAllUnitsAreTriedAgain(t *testing.T) {
	c := &crowd{t: t, services: services(2, maxSize, 2*time.Second), random: rand.New(rand.NewPCG(1, 1))}
	var err error
	c.s, err = overlap.New(overlap.Config{Services: c.services, Policy: "overlap", Devices: []overlap.Predictor{spoiled{}}, Units: []int{2}, Alone: []bool{true}})
	if err != nil {
		t.Fatal(err)
	}
	wide := 0
	for range 45 {
		c.arrive(0)
		r, ok := c.s.Next(c.now)
		if !ok {
			t.Fatal("a lone query does not start")
		}
		if r.Spans[0].Share == 0 {
			wide++
		}
		c.now += r.Predicted.Latency
		span := r.Group.Spans[0]
		o := models.Outcome{Round: r.Number, Took: r.Predicted.Latency, Spans: []models.SpanOutcome{{Span: span, Status: models.SpanDone, Reached: span.End}}}
		if err := c.s.Finish(c.now, o); err != nil {
			t.Fatal(err)
		}
	}
	if wide < 3 || wide > 9 {
		t.Errorf("of 45 lone queries %d had all units", wide)
	}
}

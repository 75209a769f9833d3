package overlap_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// pool is a crowd before several devices, which end their rounds as predicted.
type pool struct {
	crowd
	rounds []models.Outcome // by device, of the round that it runs
	ends   []time.Duration
}

func newPool(t testing.TB, devices, n int) *pool {
	p := &pool{crowd: *newCrowdOf(t, "overlap", 4, newPredictor(t, n, 32, 32, 32), n, 0, 50*time.Millisecond, devices)}
	p.rounds, p.ends = make([]models.Outcome, devices), slices.Repeat([]time.Duration{idle}, devices)
	for i := range waiting*n + runs*devices {
		p.arrive(models.ServiceID(i % n))
	}
	for range 2 * devices {
		p.start()
	}
	return p
}

// runs is how many queries a device may run, two batches, besides those that wait.
const runs = 2 * maxSize

// idle is when a round ends that does not run.
const idle = time.Duration(math.MaxInt64)

// start begins a round on a device, if one is free.
func (p *pool) start() {
	if !slices.Contains(p.ends, idle) {
		return
	}
	began := time.Now()
	r, ok := p.s.Next(p.now)
	took := time.Since(began)
	p.replace()
	if !ok {
		return
	}
	p.took = append(p.took, took)
	o := &p.rounds[r.Device]
	o.Round, o.Device, o.Took, o.Spans = r.Number, r.Device, r.Predicted.Latency, o.Spans[:0]
	for _, s := range r.Group.Spans {
		o.Spans = append(o.Spans, models.SpanOutcome{Span: s, Reached: s.End, Took: o.Took})
	}
	p.ends[r.Device] = p.now + o.Took
}

// turn ends the round that ends first, and starts others.
func (p *pool) turn() {
	first := slices.Index(p.ends, slices.Min(p.ends))
	if p.ends[first] == idle {
		p.t.Fatal("nothing runs")
	}
	p.now = max(p.now, p.ends[first])
	p.ends[first] = idle
	if err := p.s.Finish(p.now, p.rounds[first]); err != nil {
		p.t.Fatal(err)
	}
	p.replace()
	for range 2 * len(p.ends) { // once more where all that waited was dropped
		p.start()
	}
}

// Deciding for a pool does not allocate.
func TestPoolDoesNotAllocate(t *testing.T) {
	p := newPool(t, 4, 8)
	p.took = make([]time.Duration, 0, 1<<16)
	for range 2000 {
		p.turn()
	}
	if n := testing.AllocsPerRun(1000, p.turn); n != 0 {
		t.Errorf("a round allocates %v times", n)
	}
}

// BenchmarkPool tells the time of Next for one of several devices, as BenchmarkDecision
// does for one: eight services with four queries each that wait.
func BenchmarkPool(b *testing.B) {
	for _, devices := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprintf("%ddevices", devices), func(b *testing.B) {
			p := newPool(b, devices, 8)
			for range 1000 {
				p.turn()
			}
			p.took = make([]time.Duration, 0, 2*b.N)
			b.ReportAllocs()
			for b.Loop() {
				p.turn()
			}
			slices.Sort(p.took)
			b.ReportMetric(float64(p.took[len(p.took)/2])/1e3, "µs/decision")
			b.ReportMetric(float64(p.took[len(p.took)*99/100])/1e3, "µs/p99")
		})
	}
}

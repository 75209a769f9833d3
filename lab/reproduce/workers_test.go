package reproduce

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/overlapd/overlapd/planning/selection"
)

// threeVariants are a fast, a middle and an accurate one.
func threeVariants() []selection.Variant {
	return []selection.Variant{
		{Name: "fast", Accuracy: 50, Latency: []float64{10, 15, 60}},
		{Name: "middle", Accuracy: 70, Latency: []float64{20, 30, 70}},
		{Name: "accurate", Accuracy: 90, Latency: []float64{45, 90, 95}},
	}
}

// TestCentral follows a queue by hand: free workers immediately take the queued queries in order,
// up to the largest batch.
func TestCentral(t *testing.T) {
	f := fleet{[]selection.Variant{{Accuracy: 50, Latency: []float64{10, 15, 18}}}, 20, 2}
	s := &stream{times: []float64{0, 1, 2, 3, 4, 5}}
	for largest, want := range map[int]int{
		1: 4, // 0 to 10, 1 to 11, 10 to 20, 11 to 21, and two that are too late
		2: 2, // 0 to 10, 1 to 11, then two batches of 2 until 25 and 26
		3: 3, // the last one alone from 11 to 21
	} {
		o := f.central(s, func(float64) setting { return setting{0, largest} })
		if o.queries != 6 || o.inTime != want || o.accuracy != float64(50*want) {
			t.Errorf("batches of up to %d: %+v, want %d in time", largest, o, want)
		}
	}
}

// TestJellyfish: a variant must do 5 % more than the load, in batches that take at most half
// the target.
func TestJellyfish(t *testing.T) {
	f := fleet{threeVariants(), 100, 2}
	for load, want := range map[float64]setting{
		1: {2, 1}, 42: {2, 1}, 43: {1, 2}, 126: {1, 2}, 127: {0, 2}, 253: {0, 2}, 254: {0, 3},
	} {
		if got := f.jellyfish(load); got != want {
			t.Errorf("at %v: %v, want %v", load, got, want)
		}
	}
}

// TestSwitching: what is chosen has its 99th percentile within the target, with other queries
// too, and what is more accurate has not, whatever its largest batch.
func TestSwitching(t *testing.T) {
	const allowed, seconds, high = 0.01, 300, 245
	f := fleet{threeVariants(), 50, 2}
	f.variants[0].Latency = []float64{10, 15, 20, 45} // the largest batch is not the best
	late := func(c setting, load float64) float64 {
		o := f.central(constant(load, seconds, 1, rand.New(rand.NewPCG(2, 2))), func(float64) setting { return c })
		return o.violations()
	}
	for low := 5.0; low < 100; low += 10 {
		choose := f.switching(low, high, 1, func(float64) float64 { return seconds }, rand.New(rand.NewPCG(1, 1)))
		for load, last := low, 2; load <= high; load += 100 {
			c := choose(load)
			if c.variant > last {
				t.Errorf("at %v: %v, which is slower than what less load has", load, c)
			}
			last = c.variant
			if l := late(c, load); c != f.fallback() && l > 1.5*allowed {
				t.Errorf("at %v: %v, with %.2f %% late", load, c, 100*l)
			}
			better := c.variant + 1
			if c == f.fallback() {
				better = 0
			}
			for v := better; v < 3; v++ {
				for b := 1; b <= f.largest(v, f.target); b++ {
					if l := late(setting{v, b}, load); l < allowed/1.5 {
						t.Errorf("at %v: %v, though variant %d in batches of %d has only %.2f %% late", load, c, v, b, 100*l)
					}
				}
			}
		}
		if choose(0) != choose(low) || choose(low+0.1) != choose(low+100) || choose(1e9) != choose(high) || choose(math.Inf(1)) != choose(high) {
			t.Error("between and outside the loads measured another one counts than the next higher")
		}
	}
	if c := f.switching(1000, 1000, 1, func(float64) float64 { return 10 }, rand.New(rand.NewPCG(1, 1)))(1000); c != f.fallback() {
		t.Errorf("%v, though nothing bears the load", c)
	}
}

// TestDealt serves queries event by event, each worker having every second one.
func TestDealt(t *testing.T) {
	for _, drop := range []bool{false, true} {
		w := selection.Worker{Variants: threeVariants(), Target: 100, Workers: 2, Rate: 60, CV: 1, Queue: 3, Levels: 50, Drop: drop}
		p, err := w.Solve(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		f := fleet{threeVariants(), w.Target, w.Workers}
		s := constant(90, 20, 1, rand.New(rand.NewPCG(1, 1)))
		got, want := f.dealt(s, func(float64) *selection.Policy { return p }), outcome{}
		var waiting [2][]float64
		var free [2]float64
		start := func(k int, now float64) {
			for len(waiting[k]) > 0 && free[k] <= now {
				at := max(free[k], waiting[k][0])
				n := 0
				for n < len(waiting[k]) && waiting[k][n] <= at {
					n++
				}
				v, b := p.Choose(n, waiting[k][0]+w.Target-at)
				for _, came := range waiting[k][:b] {
					want.queries++
					if v != selection.Dropped && at+p.Variants[v].Latency[b-1] <= came+w.Target {
						want.inTime++
						want.accuracy += p.Variants[v].Accuracy
					}
				}
				waiting[k] = waiting[k][b:]
				if v != selection.Dropped {
					free[k] = at + p.Variants[v].Latency[b-1]
				}
			}
		}
		for i, came := range s.times {
			for w := range free {
				start(w, math.Nextafter(came, 0))
			}
			waiting[i%2] = append(waiting[i%2], came)
		}
		for w := range free {
			start(w, math.Inf(1))
		}
		if got != want || got.queries != len(s.times) || got.inTime == 0 || got.inTime == got.queries {
			t.Errorf("dropping %v: %+v, want %+v", drop, got, want)
		}
	}
}

// TestMonitor: the load is what came within the last half second, and before that anything.
func TestMonitor(t *testing.T) {
	s := changing([]float64{100, 1000}, 2, rand.New(rand.NewPCG(1, 1)))
	if !math.IsInf(s.load(499.9), 1) {
		t.Errorf("a load of %v is known too early", s.load(499.9))
	}
	for now := 500.0; now < 3990; now += 7 {
		n := 0
		for _, at := range s.times {
			if at >= now-window && at < now {
				n++
			}
		}
		if got := s.load(now); got != float64(2*n) {
			t.Fatalf("at %v: %v, want %v", now, got, 2*n)
		}
	}
}

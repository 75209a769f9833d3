package predictor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// device takes as long as predicted, times its slowness, give or take.
type device struct {
	rng    *rand.Rand
	slow   float64
	spread float64
}

func newDevice(seed uint64) *device {
	return &device{rng: rand.New(rand.NewPCG(seed, 1)), slow: 1, spread: 0.04}
}

const tenMillis = 10e6 // nanoseconds

// run lets the device run groups of the given shapes in turn and returns how
// many of them exceeded their bound.
func (d *device) run(c *calibration, keys []shapeKey, n int) (exceeded int) {
	for i := range n {
		key := keys[i%len(keys)]
		took := tenMillis * d.slow * math.Exp(d.rng.NormFloat64()*d.spread)
		if took > tenMillis*c.margin(key).bound {
			exceeded++
		}
		c.observe(key, tenMillis, took)
	}
	return exceeded
}

// pairs returns the shapes of n services two by two.
func pairs(n int, source source) (keys []shapeKey) {
	for i := range n {
		for j := range i {
			keys = append(keys, shapeKey{1<<i | 1<<j, source})
		}
	}
	return keys
}

var trained = Quantiles{P01: 0.93, P50: 1, P90: 1.04, P95: 1.06, P99: 1.09}

func newTrained() *calibration {
	c := newCalibration()
	c.restart(sourceNetwork, trained)
	return c
}

func near1(t testing.TB, what string, got, want, by float64) {
	t.Helper()
	if math.Abs(got/want-1) > by {
		t.Errorf("%s is %.3f, want %.3f within %.0f %%", what, got, want, 100*by)
	}
}

func TestStartsFromTheFile(t *testing.T) {
	c := newTrained()
	key := pairs(2, sourceNetwork)[0]
	if m := c.margin(key); m.latency != trained.P50 || m.bound != trained.P99 {
		t.Errorf("before anything was measured: %+v", m)
	}
	for _, source := range []source{sourceSolo, sourceSum} {
		if m := c.margin(shapeKey{1, source}); m.latency != 1 || m.bound != 1 {
			t.Errorf("%s before anything was measured: %+v", source, m)
		}
	}
}

// However many shapes there are, a device that turns 25 % slower is covered
// again after recentRuns groups, and the margin is no wider than before.
func TestFollowsADeviceThatChanges(t *testing.T) {
	for _, services := range []int{2, 3, 6} {
		for seed := range uint64(20) {
			t.Run(fmt.Sprintf("%d services, seed %d", services, seed), func(t *testing.T) {
				c, d, keys := newTrained(), newDevice(seed), pairs(services, sourceNetwork)
				d.run(c, keys, 1000)
				before := c.margin(keys[0])
				if n := d.run(c, keys, 1000); n > 25 {
					t.Errorf("%d of 1000 exceed their bound", n)
				}
				for _, slow := range []float64{1.25, 1, 1.5, 0.8, 1} {
					d.slow = slow
					d.run(c, keys, recentRuns)
					m := c.margin(keys[0])
					near1(t, "the latency", m.latency, before.latency*slow, 0.06)
					near1(t, "the bound", m.bound, before.bound*slow, 0.08)
					if n := d.run(c, keys, 1000); n > 25 {
						t.Errorf("%v times as slow: %d of 1000 exceed their bound", slow, n)
					}
				}
			})
		}
	}
}

func TestFollowsADriftThatIsSlow(t *testing.T) {
	c, d, keys := newTrained(), newDevice(1), pairs(3, sourceNetwork)
	exceeded := 0
	for range 3000 {
		d.slow *= math.Exp(math.Log(1.5) / 3000)
		exceeded += d.run(c, keys[:1], 1)
	}
	if exceeded > 90 {
		t.Errorf("%d of 3000 exceed their bound", exceeded)
	}
	near1(t, "the latency", c.margin(keys[0]).latency, 1.5, 0.06)
}

// A shape that is always off is corrected by its own window, and the others
// are not.
func TestLearnsWhatAShapeIsOffBy(t *testing.T) {
	c, d, keys := newTrained(), newDevice(2), pairs(3, sourceNetwork)
	for range 400 {
		for i, slow := range []float64{1, 1, 1.07} {
			d.slow = slow
			d.run(c, keys[i:i+1], 1)
		}
	}
	for i, want := range []float64{1, 1, 1.07} {
		near1(t, "the latency", c.margin(keys[i]).latency, want, 0.02)
	}
}

// One run that takes five times as long changes nothing where the shape is
// known well, and the bound by at most outlierStep where it is not.
func TestHiccupsAreBounded(t *testing.T) {
	for _, runs := range []int{0, 20, enoughRuns + recentRuns, 150, 400} {
		c, d, keys := newTrained(), newDevice(3), pairs(2, sourceNetwork)
		d.run(c, keys, runs)
		before := c.margin(keys[0])
		c.observe(keys[0], tenMillis, 5*tenMillis)
		near1(t, "the bound right after a hiccup", c.margin(keys[0]).bound, before.bound, 0.01)
		highest := 0.0
		for range 3 * recentRuns {
			d.run(c, keys, 1)
			highest = max(highest, c.margin(keys[0]).bound)
		}
		limit := outlierStep * 1.05 // and what the other runs do
		if runs >= 2*windowRuns {
			limit = 1.05
		}
		if highest > before.bound*limit {
			t.Errorf("after %d runs a hiccup raises the bound from %.3f to %.3f", runs, before.bound, highest)
		}
	}
}

// Fewer hiccups than agreeing are no slower device; whatever they raised is gone when the windows have moved on.
func TestHiccupsAreForgotten(t *testing.T) {
	c, d, keys := newTrained(), newDevice(4), pairs(2, sourceNetwork)
	d.run(c, keys, 400)
	before := c.margin(keys[0])
	for range agreeing - 2 {
		c.observe(keys[0], tenMillis, 5*tenMillis)
	}
	near1(t, "the latency", c.margin(keys[0]).latency, before.latency, 0.02)
	d.run(c, keys, windowRuns+2*recentRuns)
	near1(t, "the bound", c.margin(keys[0]).bound, before.bound, 0.05)
}

// A slowness that keeps groups from being formed is forgotten while others
// run.
func TestSlownessIsForgotten(t *testing.T) {
	c, d, keys := newTrained(), newDevice(5), pairs(2, sourceNetwork)
	d.slow = 8
	d.run(c, keys, 2*recentRuns)
	near1(t, "the latency", c.margin(keys[0]).latency, 8, 0.1)
	d.slow = 1
	d.run(c, []shapeKey{{1, sourceSolo}}, 8*(relaxAfter+1))
	near1(t, "the latency", c.margin(keys[0]).latency, 1, 0.05)
}

func TestStaleShapesDoNotCount(t *testing.T) {
	c, d, keys := newTrained(), newDevice(6), pairs(3, sourceNetwork)
	for range 100 { // the first is off by 7 %
		d.slow = 1.07
		d.run(c, keys[:1], 1)
		d.slow = 1
		d.run(c, keys[1:], 2)
	}
	if m := c.margin(keys[0]); m.latency < 1.05 {
		t.Fatalf("not learned: %+v", m)
	}
	d.run(c, keys[1:], staleAfter+1)
	near1(t, "the latency of a stale shape", c.margin(keys[0]).latency, 1, 0.02)
}

func TestSourcesAreCorrectedDifferently(t *testing.T) {
	c, d := newCalibration(), newDevice(7)
	solo, sum := shapeKey{1, sourceSolo}, shapeKey{3, sourceSum}
	d.slow = 0.6 // spans that overlap take less than their sum
	d.run(c, []shapeKey{sum}, 300)
	if m := c.margin(sum); m.latency != 1 || m.bound != 1 {
		t.Errorf("a sum that is conservative became %+v", m)
	}
	d.slow = 1.4
	d.run(c, []shapeKey{sum}, 300)
	near1(t, "the latency of spans that hinder each other", c.margin(sum).latency, 1.4, 0.05)
	d.slow = 1
	d.run(c, []shapeKey{solo}, 300)
	if m := c.margin(solo); m.latency != 1 || m.bound < 1.05 || m.bound > 1.2 {
		t.Errorf("solo: %+v; want its latency as it is and a bound for a spread of 4 %%", m)
	}
}

func TestShapesAreBounded(t *testing.T) {
	c := newTrained()
	for i := range uint64(2 * MaxShapes) {
		c.observe(shapeKey{i + 1, sourceNetwork}, tenMillis, tenMillis)
	}
	if len(c.shapes) != MaxShapes {
		t.Errorf("%d shapes", len(c.shapes))
	}
	for range staleAfter {
		c.observe(shapeKey{1, sourceNetwork}, tenMillis, tenMillis)
	}
	late := shapeKey{3 * MaxShapes, sourceNetwork}
	c.observe(late, tenMillis, tenMillis)
	if c.shapes[late] == nil || len(c.shapes) != MaxShapes {
		t.Errorf("a new shape did not take the place of a stale one; %d shapes", len(c.shapes))
	}
}

func TestKeyOf(t *testing.T) {
	g := groupOf(span(5, 0, 1, 1, 0), span(0, 0, 1, 1, 0), span(63, 0, 1, 1, 0))
	key := keyOf(g.Spans, sourceSum)
	if diff := cmp.Diff("[0 5 63]", fmt.Sprint(key.members())); diff != "" || key.source != sourceSum {
		t.Error(diff)
	}
	if key := keyOf(groupOf(span(1, 0, 1, 1, 0), span(64, 0, 1, 1, 0)).Spans, sourceSum); key.services != 0 {
		t.Errorf("a service too many: %+v", key)
	}
}

// Whatever is measured, margins are positive, finite and in order, and the
// same runs give the same.
func TestMarginProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := newTrained(), newTrained()
		for range rapid.IntRange(1, 400).Draw(t, "runs") {
			key := shapeKey{rapid.Uint64Range(0, 4).Draw(t, "services"), source(rapid.IntRange(0, int(sources)-1).Draw(t, "source"))}
			took := math.Pow(10, rapid.Float64Range(0, 12).Draw(t, "took"))
			a.observe(key, tenMillis, took)
			b.observe(key, tenMillis, took)
			m := a.margin(key)
			if !(m.latency > 0 && m.latency <= m.bound && finite(m.bound)) {
				t.Fatalf("%+v", m)
			}
			if m != b.margin(key) {
				t.Fatalf("%+v, the second time %+v", m, b.margin(key))
			}
		}
	})
}

func TestObserveOfKnownShapesDoesNotAllocate(t *testing.T) {
	c, d, keys := newTrained(), newDevice(8), pairs(4, sourceNetwork)
	d.run(c, keys, 100)
	if n := testing.AllocsPerRun(1000, func() { d.run(c, keys, 1) }); n != 0 {
		t.Errorf("observe allocates %v times", n)
	}
}

func BenchmarkCalibrationObserve(b *testing.B) {
	c, d, keys := newTrained(), newDevice(9), pairs(4, sourceNetwork)
	d.run(c, keys, 5000)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c.observe(keys[i%len(keys)], tenMillis, tenMillis*(1+float64(i%7)/100))
	}
}

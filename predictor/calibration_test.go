package predictor

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// device takes as long as predicted, times its slowness, give or take.
type device struct {
	rng    *rand.Rand
	now    time.Duration
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
		d.observe(c, key, took)
	}
	return exceeded
}

// observe tells of one run, for which ten milliseconds were predicted.
func (d *device) observe(c *calibration, key shapeKey, took float64) {
	d.now += time.Duration(took)
	c.observe(d.now, key, 1, tenMillis, took)
}

// of returns the shape of the services whose bits are set, of the first 64.
func of(services uint64, source source) shapeKey {
	key := shapeKey{source: source}
	key.services[0] = services
	return key
}

// pairs returns the shapes of n services two by two.
func pairs(n int, source source) (keys []shapeKey) {
	for i := range n {
		for j := range i {
			keys = append(keys, of(1<<i|1<<j, source))
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
		if m := c.margin(of(1, source)); m.latency != 1 || m.bound != 1 {
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

// One run that takes five times as long changes nothing where the shape is
// known well, and the bound by at most outlierStep where it is not.
func TestHiccupsAreBounded(t *testing.T) {
	for _, runs := range []int{0, 20, enoughRuns + recentRuns, 150, 400} {
		c, d, keys := newTrained(), newDevice(3), pairs(2, sourceNetwork)
		d.run(c, keys, runs)
		before := c.margin(keys[0])
		d.observe(c, keys[0], 5*tenMillis)
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

// A host that stalls adds to one run in four as much as it takes five times over, in
// all shapes. The bounds that this raises keep groups from being formed; soon after
// the stalls they are what they were, though only solo spans run. The last shape was
// seen a few times only, and its bound is that of all.
func TestStallsAreForgotten(t *testing.T) {
	c, d, keys := newTrained(), newDevice(10), append(pairs(3, sourceNetwork), of(1, sourceSolo))
	rare := of(15, sourceNetwork)
	d.run(c, keys, 400)
	d.run(c, []shapeKey{rare}, enoughRuns/2)
	before := map[shapeKey]margin{rare: c.margin(rare)}
	for _, key := range keys {
		before[key] = c.margin(key)
	}
	highest := 0.0
	for i := range 1000 {
		took := float64(tenMillis)
		if d.rng.IntN(4) == 0 {
			took *= 1 + 5*d.rng.Float64()
		}
		d.observe(c, append(keys, rare)[i%(len(keys)+1)], took)
		highest = max(highest, c.margin(rare).bound, c.margin(keys[0]).bound)
	}
	if highest < 2 {
		t.Fatalf("the stalls have raised no bound above %.2f, so that this shows nothing", highest)
	}
	d.run(c, []shapeKey{of(1, sourceSolo)}, int(2*outlierAge/tenMillis))
	for key, m := range before {
		near1(t, fmt.Sprintf("the bound of %s %b", key.source, key.services), c.margin(key).bound, m.bound, 0.1)
		near1(t, fmt.Sprintf("the latency of %s %b", key.source, key.services), c.margin(key).latency, m.latency, 0.05)
	}
}

// A shape that takes twice as long from now on, while others do not, is not taken for
// one that stalls.
// Of slices of a model, one in twenty is held up for as long as it takes itself. All of
// the model is never late by so much.
func TestSlicesDoNotSetTheMarginOfWholeModels(t *testing.T) {
	const operators = 25
	solo := newSolo(t, operators)
	p := New(solo)
	set(t, solo, 0, 1, 0, slices.Repeat([]time.Duration{4 * ms}, operators)...)
	now := time.Duration(0)
	for i := range 400 {
		took := 4 * ms
		if i%20 == 19 {
			took *= 2
		}
		now += took
		if err := p.Observe(now, models.Group{Spans: []models.Span{span(0, i%operators, i%operators+1, 1, 0)}}, took); err != nil {
			t.Fatal(err)
		}
	}
	estimates := make([]models.Estimate, 1)
	p.Predict([]models.Group{{Spans: []models.Span{span(0, 0, operators, 1, 0)}}}, estimates)
	if e := estimates[0]; float64(e.Bound) > 1.25*float64(e.Latency) {
		t.Errorf("all of the model is predicted to take %v, and at most %v", e.Latency, e.Bound)
	}
}

func TestShapeThatChangesIsNoOutlier(t *testing.T) {
	c, d, keys := newTrained(), newDevice(11), pairs(3, sourceNetwork)
	d.run(c, keys, 600)
	exceeded := 0
	for range 3 * windowRuns {
		d.slow = 1
		d.run(c, keys[:2], 8)
		d.slow = 2
		exceeded += d.run(c, keys[2:], 1)
	}
	if exceeded > 3*windowRuns/20 {
		t.Errorf("%d of %d runs exceed their bound", exceeded, 3*windowRuns)
	}
	near1(t, "the latency", c.margin(keys[2]).latency, 2, 0.1)
	near1(t, "the latency of another", c.margin(keys[0]).latency, 1, 0.05)
}

// What was known of a shape before a night without queries is known in the morning.
func TestNothingIsForgottenWhileNothingRuns(t *testing.T) {
	c, d, keys := newTrained(), newDevice(12), pairs(2, sourceNetwork)
	d.slow = 1.07
	d.run(c, keys, 200)
	before := c.margin(keys[0])
	d.now += 10 * time.Hour
	d.run(c, []shapeKey{of(1, sourceSolo)}, 1)
	after := c.margin(keys[0])
	near1(t, "the middle", after.middle, before.middle, 0.001)
	near1(t, "the high quantile", after.high, before.high, 0.001)
}

// A slowness that keeps groups from being formed is forgotten while others run: many,
// or for a while.
func TestSlownessIsForgotten(t *testing.T) {
	for others, pause := range map[int]time.Duration{8 * (relaxRuns + 1): 0, 8: relaxAfter} {
		c, d, keys := newTrained(), newDevice(5), pairs(2, sourceNetwork)
		d.slow = 8
		d.run(c, keys, 2*recentRuns)
		near1(t, "the latency", c.margin(keys[0]).latency, 8, 0.1)
		d.slow = 1
		for range others {
			d.now += pause
			d.run(c, []shapeKey{of(1, sourceSolo)}, 1)
		}
		near1(t, fmt.Sprintf("the latency after %d other runs", others), c.margin(keys[0]).latency, 1, 0.05)
	}
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
	d.run(c, keys[1:], int(staleAfter/tenMillis)+100)
	near1(t, "the latency of a stale shape", c.margin(keys[0]).latency, 1, 0.02)
}

func TestSourcesAreCorrectedDifferently(t *testing.T) {
	c, d := newCalibration(), newDevice(7)
	solo, sum := of(1, sourceSolo), of(3, sourceSum)
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
	for i := range uint64(2 * maxShapes) {
		c.observe(0, of(i+1, sourceNetwork), 1, tenMillis, tenMillis)
	}
	if len(c.shapes) != maxShapes {
		t.Errorf("%d shapes", len(c.shapes))
	}
	late := of(3*maxShapes, sourceNetwork)
	for now := time.Duration(0); now <= staleAfter; now += time.Second {
		if c.observe(now, late, 1, tenMillis, tenMillis); c.shapes[late] != nil {
			t.Fatalf("a new shape took the place of one that ran %v ago", now)
		}
	}
	c.observe(staleAfter+time.Second, late, 1, tenMillis, tenMillis)
	if c.shapes[late] == nil || len(c.shapes) > maxShapes {
		t.Errorf("a new shape did not take the place of a stale one; %d shapes", len(c.shapes))
	}
}

// Whatever is measured, margins are positive, finite and in order, and the
// same runs give the same.
func TestMarginProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, now := newTrained(), newTrained(), time.Duration(0)
		for range rapid.IntRange(1, 400).Draw(t, "runs") {
			key := of(rapid.Uint64Range(0, 4).Draw(t, "services"), source(rapid.IntRange(0, int(sources)-1).Draw(t, "source")))
			took := math.Pow(10, rapid.Float64Range(0, 12).Draw(t, "took"))
			now += time.Duration(rapid.Int64Range(0, int64(time.Minute)).Draw(t, "later"))
			a.observe(now, key, 1, tenMillis, took)
			b.observe(now, key, 1, tenMillis, took)
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

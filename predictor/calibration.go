package predictor

import (
	"cmp"
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

const (
	// maxShapes is the number of group shapes that can have a window of their own.
	maxShapes = 256

	// enoughRuns is the number of runs that a window needs before it is used.
	enoughRuns = 16

	// staleAfter is how long a shape can go without a run before its window is ignored.
	// Without this limit, an estimate that keeps the scheduler from forming a group would
	// never be corrected.
	staleAfter = time.Minute

	// A run is an outlier if it exceeds its shape's usual bound by the factor outlierLeast.
	// It is then attributed to a stall of the host. It counts only for outlierAge, so that
	// its effect ends soon after the host recovers, and it counts as if it exceeded the bound
	// by at most outlierStep. When more than agreeing runs of a shape in a row are outliers,
	// they are the new normal and count like any other run.
	outlierLeast = 1.05
	outlierStep  = 1.15
	outlierAge   = 10 * time.Second
)

// calibration corrects predictions by measurements, for each shape of group, and sets the
// margin for the bound.
//
// The ratio of measured to predicted latency has two factors. The first is the current speed of
// the device relative to the predictor. It is one number for all shapes of a source (see speed),
// so it follows a change of the device within a few groups of any shape. The ratios that remain
// are kept in windows, one per shape and one per source. Their median corrects a bias of the
// shape, and their p99 is the margin.
//
// The delays of a model's operators are independent of each other. The excess of a partial run
// over the median is therefore scaled by the square root of its share of the model. Otherwise
// rounds of a few milliseconds, which one late wake-up can double, would set the margin of whole
// models.
//
// A stall of the host delays whatever happens to run. No useful margin can cover it, and it says
// nothing about the shape it hit. Outliers therefore expire by the clock: a shape that they keep
// from running is tried again without waiting for better runs of it.
type calibration struct {
	speeds       [sources]speed
	shapes       map[shapeKey]*shape
	observations uint64

	// now is the clock by which outliers and shapes age. seen is the time of the last run. now
	// advances by at most outlierAge per run, so that an idle period does not age shapes.
	now  time.Duration
	seen time.Duration
}

// shapeKey is the set of services in a group and the source of its prediction. Service i is bit
// i%64 of word i/64.
type shapeKey struct {
	services [MaxServices / 64]uint64
	source   source
}

// shape holds the observed runs of one shape, and the time of the last of them.
type shape struct {
	runs uint64
	last time.Duration
	own  window

	// margin caches the result of the last call of margin, made after asked observations.
	margin margin
	asked  uint64
}

// margin holds the factors by which a prediction is multiplied: latency for the estimate and
// bound for its p99. They derive from the ratios of measured to predicted at a constant device
// speed: middle is their median, high their p99, and usual their p99 without outliers.
type margin struct {
	middle, usual, high float64
	latency             float64
	bound               float64
}

func newCalibration() *calibration {
	c := &calibration{shapes: make(map[shapeKey]*shape), observations: 1}
	for i := range c.speeds {
		c.speeds[i].source = source(i)
		c.restart(source(i), Exact)
	}
	return c
}

// Exact holds the quantiles of predictions that are always right.
var Exact = Quantiles{P01: 1, P50: 1, P90: 1, P95: 1, P99: 1}

// restart discards what was learned about a source. Until enough runs are observed, its
// predictions are assumed to have the error quantiles in start.
func (c *calibration) restart(source source, start Quantiles) {
	c.speeds[source].reset(start)
	maps.DeleteFunc(c.shapes, func(key shapeKey, _ *shape) bool { return key.source == source })
}

// forget discards every shape that includes a service. What was learned about a source across
// shapes remains.
func (c *calibration) forget(service models.ServiceID) {
	maps.DeleteFunc(c.shapes, func(key shapeKey, _ *shape) bool { return slices.Contains(key.members(), service) })
}

func keyOf(spans []models.Span, source source) shapeKey {
	key := shapeKey{source: source}
	for i := range spans {
		key.add(spans[i].Service)
	}
	return key
}

// add adds a service to the set.
func (k *shapeKey) add(id models.ServiceID) { k.services[id/64] |= 1 << (id % 64) }

// members returns the services of the set in ascending order.
func (k shapeKey) members() []models.ServiceID {
	var ids []models.ServiceID
	for word, set := range k.services {
		for ; set != 0; set &= set - 1 {
			ids = append(ids, models.ServiceID(64*word+bits.TrailingZeros64(set)))
		}
	}
	return ids
}

// margin returns the factors for predictions of a shape. It does not allocate.
func (c *calibration) margin(key shapeKey) margin {
	s, of := &c.speeds[key.source], c.shapes[key]
	if of == nil {
		of = &s.other
	}
	// The result is cached, because one decision asks many times.
	if of.asked != c.observations {
		of.asked, of.margin = c.observations, c.marginOf(s, of)
	}
	return of.margin
}

// marginOf computes margin for a shape, which may be nil.
func (c *calibration) marginOf(s *speed, of *shape) margin {
	s.all.age(c.now)
	m, own := s.margin(), c.trusted(of)
	if own {
		spread := m.usual / m.middle
		m = of.own.margin()
		// Of fewer runs, even the largest may be below the p99. Use the spread of the
		// source, except for sums, whose spread differs from shape to shape.
		if s.source != sourceSum && of.own.len() < windowRuns {
			m.usual = max(m.usual, m.middle*spread)
		}
	}
	m.usual = max(m.usual, m.middle)
	m.high = max(m.high, m.usual)
	m.latency, m.bound = s.level*m.middle, s.level*m.high
	switch {
	case s.source == sourceSolo && !own:
		m.latency, m.bound = 1, 1
	case s.source == sourceSolo:
		// The table of isolated latencies corrects itself.
		m.latency, m.bound = 1, max(m.bound, 1)
	case s.source == sourceBeside:
		// Others never make a span faster: if it seems so, its isolated latency is wrong, and
		// that is corrected.
		m.latency, m.bound = max(m.latency, 1), max(m.bound, 1)
	case s.source == sourceSum:
		// A sum is meant to be conservative, so it is never reduced.
		m.latency, m.bound = max(m.latency, 1), max(m.bound, 1)
	}
	return m
}

// trusted reports whether a shape has enough runs and the last of them is recent.
func (c *calibration) trusted(s *shape) bool {
	return s != nil && !c.stale(s) && s.own.age(c.now) >= enoughRuns
}

func (c *calibration) stale(s *shape) bool { return c.now-s.last > staleAfter }

// observe records the latency of a group that has just ended, and what the source had predicted
// for it, both in nanoseconds. part is the prediction as a fraction of the isolated latency of the
// group's longest model. While nothing runs, only outliers age. observe allocates only for a new
// shape.
func (c *calibration) observe(now time.Duration, key shapeKey, part, predicted, took float64) {
	c.observations++
	c.now += min(max(now-c.seen, 0), outlierAge)
	c.seen = max(c.seen, now)
	for i := range c.speeds {
		if i != int(key.source) {
			c.speeds[i].relax(c.now)
		}
	}
	s, of := &c.speeds[key.source], c.shape(key)
	if of != nil {
		of.runs++
		of.last = c.now
	}
	m := c.marginOf(s, of)
	r := run{
		shape:    of,
		at:       c.now,
		part:     part,
		ratio:    min(max(took/predicted, 1/maxRatio), maxRatio),
		expected: m.middle,
		rawError: math.Abs(predicted/took - 1),
		error:    math.Abs(predicted*m.latency/took - 1),
	}
	// The error of a sum depends on how much the spans overlap, which differs from shape to
	// shape. Until the shape itself is known, the run says nothing about the device's speed.
	if s.source == sourceSum && !c.trusted(of) {
		r.expected = 0
	}
	if old, ok := s.push(r); ok {
		c.keep(s, old)
	}
	s.follow()
}

// keep adds a run to the windows, with its ratio normalized to a constant device speed. Without
// a shape, consecutive outliers are counted for the source.
func (c *calibration) keep(s *speed, r run) {
	if r.level == 0 {
		r.level = s.level
	}
	r.ratio /= r.level
	m, own := c.marginOf(s, r.shape), &s.all
	if r.ratio > m.middle {
		r.ratio = m.middle + (r.ratio-m.middle)*math.Sqrt(r.part)
	}
	if r.shape != nil {
		own = &r.shape.own
	}
	if own.row++; r.ratio <= m.usual*outlierLeast {
		own.row = 0
	}
	r.outlier = 0 < own.row && own.row <= agreeing
	r.ratio = min(r.ratio, m.high*outlierStep)
	s.all.add(r)
	if r.shape != nil {
		own.add(r)
	}
}

// shape returns the shape of a key, and creates it or resets a stale one. It returns nil if there
// are maxShapes shapes and none of them is stale.
func (c *calibration) shape(key shapeKey) *shape {
	s := c.shapes[key]
	if s == nil && len(c.shapes) >= maxShapes {
		maps.DeleteFunc(c.shapes, func(_ shapeKey, s *shape) bool { return c.stale(s) })
	}
	switch {
	case s != nil && !c.stale(s):
		return s
	case s == nil && len(c.shapes) >= maxShapes:
		return nil
	case s == nil:
		s = &shape{}
		c.shapes[key] = s
	}
	s.own.reset()
	return s
}

// Report describes the quality of a predictor.
type Report struct {
	// Answers counts the estimates by source: solo, network or sum.
	Answers map[string]uint64

	// Unknown counts the groups without an estimate.
	Unknown uint64

	// Fallbacks counts the groups of several spans that the network could not estimate, by
	// reason. All reasons are present.
	Fallbacks map[string]uint64

	// Shapes is sorted by source, then by services.
	Shapes []shapeReport
}

// shapeReport describes the quality of predictions for one shape. The errors, in percent, and the
// quantiles of measured/predicted cover the latest Window runs.
type shapeReport struct {
	Source   source
	Services []models.ServiceID
	Runs     uint64
	Window   int
	// RawMAPE is the error before any correction, and MAPE the error after it.
	RawMAPE   float64
	MAPE      float64
	Quantiles Quantiles
	// Latency and Bound are the factors by which predictions are multiplied.
	Latency float64
	Bound   float64
}

func (c *calibration) report() (shapes []shapeReport) {
	for key, s := range c.shapes {
		speed, m := &c.speeds[key.source], c.margin(key)
		r := shapeReport{
			Source: key.source, Services: key.members(), Runs: s.runs, Latency: m.latency, Bound: m.bound,
			Quantiles: s.own.quantiles(speed.level),
		}
		recent := slices.DeleteFunc(slices.Clone(speed.recent[:speed.count]), func(v run) bool { return v.shape != s })
		for _, v := range slices.Concat(s.own.runs, recent) {
			if v.error != unknownError {
				r.Window++
				r.RawMAPE += v.rawError
				r.MAPE += v.error
			}
		}
		if r.Window > 0 {
			r.RawMAPE *= 100 / float64(r.Window)
			r.MAPE *= 100 / float64(r.Window)
		}
		shapes = append(shapes, r)
	}
	slices.SortFunc(shapes, func(a, b shapeReport) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), slices.Compare(a.Services, b.Services))
	})
	return shapes
}

// source says how a latency is computed: from the isolated latency of the only span, by the
// network, as the sum of isolated latencies where the network does not cover the group, or from the
// isolated latency of a span beside which others run on other units.
type source uint8

const (
	sourceSolo source = iota
	sourceNetwork
	sourceSum
	sourceBeside
	sources
)

var sourceNames = [sources]string{"solo", "network", "sum", "beside"}

func (s source) String() string { return sourceNames[s] }

// fallback is the reason why the network cannot estimate a group.
type fallback uint8

const (
	fallbackNone fallback = iota
	// fallbackPredictor means that there is no network.
	fallbackPredictor
	// fallbackModel means that the network was trained without one of the models.
	fallbackModel
	// fallbackSize means that a batch or sequence is larger than any in training.
	fallbackSize
	// fallbackGroup means that there are more spans than in training, or two of one model.
	fallbackGroup
	fallbacks
)

var fallbackNames = [fallbacks]string{"", "no predictor", "model unknown", "size beyond training", "group beyond training"}

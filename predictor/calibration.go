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
	// maxShapes is how many group shapes have a window of their own.
	maxShapes = 256

	// enoughRuns is how many runs a window needs before it is trusted.
	enoughRuns = 16

	// staleAfter is how long a shape may not run before what is known of it counts no
	// longer. What keeps the scheduler from ever forming a group would else stay for
	// good.
	staleAfter = time.Minute

	// outlierLeast is by which factor a run exceeds the bound that its shape has
	// without outliers to be one: a stall of the host, for all that is known. It
	// counts for outlierAge, so that it is over soon after the host is well again,
	// and as if it exceeded the bound by outlierStep at most. Only where agreeing
	// runs of a shape in a row are outliers they are the rule.
	outlierLeast = 1.05
	outlierStep  = 1.15
	outlierAge   = 10 * time.Second
)

// calibration corrects what is predicted by what was measured, for each shape
// of group, and sets the margin by which a run may exceed it.
//
// The ratio of measured to predicted is taken apart. How fast the device is
// lately, as against the predictor, is one number for all shapes of a source
// (see speed): it follows a device that changes within a few groups, whatever
// their shapes. The ratios that are left are kept in windows, one for each
// shape and one for each source: their middle corrects a bias of the shape,
// and what 99 of 100 stay within is the margin.
//
// The operators of a model are late independently of each other. So what a part of it
// exceeds the middle by counts with the square root of its share: else rounds of a few
// milliseconds, which a wake-up of the host may double, set the margin of whole models.
//
// A host that stalls adds some time to whatever runs then. No margin that leaves
// room for anything covers that, and it says nothing of the shape that it happened
// to. So outliers count for a while only, by the clock: a shape that they keep from
// running is tried again without waiting for better runs of it.
type calibration struct {
	speeds       [sources]speed
	shapes       map[shapeKey]*shape
	observations uint64

	// now is the time that outliers and shapes age by, seen when the last run ended.
	now  time.Duration
	seen time.Duration
}

// shapeKey is the set of services in a group, and what predicts it. Bit i of services, which
// are counted on from word to word, is service i.
type shapeKey struct {
	services [MaxServices / 64]uint64
	source   source
}

// shape holds the runs observed of one kind of group, and when the last of them ended.
type shape struct {
	runs uint64
	last time.Duration
	own  window

	// margin is what it was when it was asked for, after so many observations.
	margin margin
	asked  uint64
}

// margin holds the factors of a prediction for its latency and its bound. They follow
// from the middle and the high quantile of the ratios of measured to predicted, taken
// as if the device had never changed its speed. usual is the high quantile without
// outliers.
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

// Exact is the quantiles of predictions that are never off.
var Exact = Quantiles{P01: 1, P50: 1, P90: 1, P95: 1, P99: 1}

// restart forgets what was learned of a source. Until enough is learned again,
// its predictions are taken to be off as in start.
func (c *calibration) restart(source source, start Quantiles) {
	c.speeds[source].reset(start)
	maps.DeleteFunc(c.shapes, func(key shapeKey, _ *shape) bool { return key.source == source })
}

// forget forgets every shape with a service. What was learned of all shapes
// together stays.
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

// add puts a service into a shape.
func (k *shapeKey) add(id models.ServiceID) { k.services[id/64] |= 1 << (id % 64) }

// members returns the services of a shape in ascending order.
func (k shapeKey) members() []models.ServiceID {
	var ids []models.ServiceID
	for word, set := range k.services {
		for ; set != 0; set &= set - 1 {
			ids = append(ids, models.ServiceID(64*word+bits.TrailingZeros64(set)))
		}
	}
	return ids
}

// margin returns what predictions for a shape are multiplied with. It does not
// allocate.
func (c *calibration) margin(key shapeKey) margin {
	s, of := &c.speeds[key.source], c.shapes[key]
	if of == nil {
		of = &s.other
	}
	if of.asked != c.observations { // a decision asks many times
		of.asked, of.margin = c.observations, c.marginOf(s, of)
	}
	return of.margin
}

// marginOf is margin for a shape that is known, or nil.
func (c *calibration) marginOf(s *speed, of *shape) margin {
	s.all.age(c.now)
	m, own := s.margin(), c.trusted(of)
	if own {
		spread := m.usual / m.middle
		m = of.own.margin()
		// The largest of fewer runs is not enough for 99 of 100. Only sums
		// spread for other reasons from shape to shape.
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
		m.latency, m.bound = 1, max(m.bound, 1) // the table of solo times corrects itself
	case s.source == sourceSum:
		m.latency, m.bound = max(m.latency, 1), max(m.bound, 1) // to be conservative is its purpose
	}
	return m
}

// trusted reports whether the window of a shape holds enough runs, and recent ones.
func (c *calibration) trusted(s *shape) bool {
	return s != nil && !c.stale(s) && s.own.age(c.now) >= enoughRuns
}

func (c *calibration) stale(s *shape) bool { return c.now-s.last > staleAfter }

// observe takes in what a group took that ended now, and for which a source predicted
// so much, both in nanoseconds: a part of what its longest model takes alone. While
// nothing runs, nothing is forgotten but outliers.
// It allocates only for a shape that is new.
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
	// Sums of solo times are off by as much as spans overlap, which is another
	// thing for each shape.
	if s.source == sourceSum && !c.trusted(of) {
		r.expected = 0
	}
	if old, ok := s.push(r); ok {
		c.keep(s, old)
	}
	s.follow()
}

// keep puts a run into the windows as if the device had never changed. Where there is
// no shape, the row of outliers is that of the source.
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

// shape returns that of a key, or nil if there are too many that are not stale. A stale
// one begins anew.
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

// Report describes how well a predictor does.
type Report struct {
	// Answers counts the estimates given, by source: solo, network or sum.
	Answers map[string]uint64

	// Unknown counts the groups for which no estimate could be given.
	Unknown uint64

	// Fallbacks counts the groups of several spans for which the network did not
	// answer, by each reason that there can be.
	Fallbacks map[string]uint64

	// Shapes are sorted by source, then services.
	Shapes []shapeReport
}

// shapeReport describes how well groups of some services are predicted. Window is
// how many of the latest runs the errors, in percent, and the quantiles of measured
// by predicted are about.
type shapeReport struct {
	Source    source
	Services  []models.ServiceID
	Runs      uint64
	Window    int
	RawMAPE   float64 // before any correction
	MAPE      float64 // after it
	Quantiles Quantiles
	Latency   float64 // factor of a prediction
	Bound     float64 // factor of a prediction
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

// source is what a latency is calculated from: the solo time of the only span, the
// network, or the sum of solo times where the network does not cover the group.
type source uint8

const (
	sourceSolo source = iota
	sourceNetwork
	sourceSum
	sources
)

var sourceNames = [sources]string{"solo", "network", "sum"}

func (s source) String() string { return sourceNames[s] }

// fallback is the reason why the network does not answer for a group.
type fallback uint8

const (
	fallbackNone      fallback = iota // the network answers
	fallbackPredictor                 // there is no network
	fallbackModel                     // it was trained without one of the models
	fallbackSize                      // it was trained on smaller batches or shorter sequences
	fallbackGroup                     // it was trained on fewer spans, or a model occurs twice
	fallbacks
)

var fallbackNames = [fallbacks]string{"", "no predictor", "model unknown", "size beyond training", "group beyond training"}

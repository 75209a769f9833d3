package bound

import (
	"cmp"
	"slices"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
)

// points is at how many places a model is cut to look for groups that gain, by
// the number of models in the group.
var points = [...]int{0, 9, 7, 4, 3}

// maxShapes limits the batches of one service that groups are tried with.
const maxShapes = 6

// costs are what batches take on a device, and the largest gain of a group.
type costs struct {
	sc *sim.Scenario

	// By service: the position of its model on the device, how many operators that
	// has, and the shapes that its batches may have.
	bound     []int
	operators []int
	shapes    [][]shape

	shares map[shapeOf]answer
	gain   float64
	tried  int
}

type shape struct{ size, seqLen int }

type shapeOf struct {
	service models.ServiceID
	shape
}

type answer struct{ share, fastest time.Duration }

// newCosts returns those of a valid scenario, for groups that gain nothing.
func newCosts(sc *sim.Scenario) *costs {
	c := &costs{sc: sc, gain: 1, shares: map[shapeOf]answer{}}
	known := sc.Device.Models()
	for i := range sc.Services {
		s := &sc.Services[i]
		name := cmp.Or(s.Model, s.Name)
		at := slices.IndexFunc(known, func(m device.ModelInfo) bool { return m.Name == name })
		c.bound, c.operators = append(c.bound, at), append(c.operators, known[at].Operators)
		c.shapes = append(c.shapes, shapesOf(s, known[at].Sizes))
	}
	return c
}

// shapesOf returns sizes of batches that a service may run, with its sequence
// lengths.
func shapesOf(s *sim.Service, measured []int) (list []shape) {
	sizes := slices.Clone(s.Sizes)
	if len(sizes) == 0 {
		sizes = append(sizes, 1)
	}
	smallest := slices.Min(sizes)
	for _, size := range append([]int{s.MaxBatch}, measured...) {
		if size > smallest && size <= s.MaxBatch {
			sizes = append(sizes, size)
		}
	}
	sizes = distinct(sizes)
	seqLens := s.SeqLens
	if len(seqLens) == 0 {
		seqLens = []int{0}
	}
	for _, seqLen := range distinct(seqLens) {
		for _, size := range sizes {
			list = append(list, shape{size, seqLen})
		}
	}
	return list
}

// distinct returns what is in a list, once and in order.
func distinct(list []int) []int { return slices.Compact(slices.Sorted(slices.Values(list))) }

func (c *costs) latency(spans ...models.Span) time.Duration {
	return c.sc.Device.Latency(models.Group{Spans: spans})
}

// of returns the least that a query's share of a batch takes alone, and the
// least that a batch takes in which it could be.
func (c *costs) of(q *sim.Query) (share, fastest time.Duration) {
	key := shapeOf{q.Service, shape{q.Size, q.SeqLen}}
	a, ok := c.shares[key]
	if !ok {
		a.fastest = c.latency(c.whole(q.Service, q.Size, q.SeqLen))
		a.share = a.fastest
		// Every size is tried, since the queries in a batch may add up to any.
		for size := q.Size + 1; size <= c.sc.Services[q.Service].MaxBatch; size++ {
			took := c.latency(c.whole(q.Service, size, q.SeqLen))
			a.fastest = min(a.fastest, took)
			a.share = min(a.share, took*time.Duration(q.Size)/time.Duration(size))
		}
		c.shares[key] = a
	}
	return a.share, a.fastest
}

// part is a span, and what it counts: the part of the whole model's time that
// passes from its first operator to its last. What the spans of a batch count
// adds up to what the batch takes alone, however it is cut.
type part struct {
	span  models.Span
	count time.Duration
}

// grow looks for the group that gains most: it tries all that add spans of the services
// from one on to these spans.
func (c *costs) grow(service int, spans []models.Span, count time.Duration, depth int) {
	if service == len(c.bound) || depth == len(points)-1 {
		return
	}
	c.grow(service+1, spans, count, depth)
	for _, p := range c.parts(service) {
		group := append(slices.Clip(spans), p.span)
		total := count + p.count
		c.tried++
		if took := c.latency(group...); took > 0 {
			c.gain = max(c.gain, float64(total)/float64(took))
		}
		c.grow(service+1, group, total, depth+1)
	}
}

// parts returns spans of a service's batches.
func (c *costs) parts(service int) (list []part) {
	n := min(points[min(len(c.bound), len(points)-1)], c.operators[service]+1)
	for _, sh := range stats.Thin(c.shapes[service], maxShapes) {
		upTo := make([]time.Duration, n)
		cut := make([]int, n)
		whole := c.whole(models.ServiceID(service), sh.size, sh.seqLen)
		for k := 1; k < n; k++ {
			cut[k] = k * c.operators[service] / (n - 1)
			whole.End = cut[k]
			upTo[k] = c.latency(whole)
		}
		for from := range n {
			for to := from + 1; to < n; to++ {
				s := whole
				s.Start, s.End = cut[from], cut[to]
				list = append(list, part{s, upTo[to] - upTo[from]})
			}
		}
	}
	return list
}

package bound

import (
	"cmp"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/models"
)

// points is the number of places at which the models of a group may be cut, by the number
// of models. It keeps the number of groups that grow tries small.
var points = [...]int{0, 9, 7, 4, 3}

// maxShapes limits the batch shapes of one service in the groups that are tried.
const maxShapes = 6

// costs computes the latencies of batches on a device, and the largest gain of a group.
type costs struct {
	sc *sim.Scenario

	// bound, operators and shapes hold for each service the position of its model on the
	// device, the model's number of operators, and the shapes of its batches.
	bound     []int
	operators []int
	shapes    [][]shape

	shares map[shapeOf]answer
	gain   float64
	tried  int
}

// shape is the batch size and the sequence length of a batch.
type shape struct{ size, seqLen int }

// shapeOf is the shape of a service's query.
type shapeOf struct {
	service models.ServiceID
	shape
}

// answer is the result of of.
type answer struct{ share, fastest time.Duration }

// newCosts returns the costs for a valid scenario. The gain is 1 before grow has tried
// groups.
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

// shapesOf returns shapes of batches that a service may run.
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

// distinct returns the sorted elements of a list without duplicates.
func distinct(list []int) []int { return slices.Compact(slices.Sorted(slices.Values(list))) }

// latency returns the median latency of a group.
func (c *costs) latency(spans ...models.Span) time.Duration {
	return c.sc.Device.Latency(models.Group{Spans: spans})
}

// of returns the smallest share of a batch's isolated latency that a query can have, and
// the smallest latency of a batch that contains it.
func (c *costs) of(q *sim.Query) (share, fastest time.Duration) {
	key := shapeOf{q.Service, shape{q.Size, q.SeqLen}}
	a, ok := c.shares[key]
	if !ok {
		a.fastest = c.latency(c.whole(q.Service, q.Size, q.SeqLen))
		a.share = a.fastest
		// Try every size, because the queries of a batch may add up to any.
		for size := q.Size + 1; size <= c.sc.Services[q.Service].MaxBatch; size++ {
			took := c.latency(c.whole(q.Service, size, q.SeqLen))
			a.fastest = min(a.fastest, took)
			a.share = min(a.share, took*time.Duration(q.Size)/time.Duration(size))
		}
		c.shares[key] = a
	}
	return a.share, a.fastest
}

// part is a span with its isolated latency as part of its model: the time from its first
// operator to its last in a run of the whole model. The parts of a batch add up to its
// isolated latency, however it is cut.
type part struct {
	span  models.Span
	count time.Duration
}

// grow finds the largest gain. It tries all groups that extend the given spans by spans of
// the services from service on. count is the isolated latency of the given spans.
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

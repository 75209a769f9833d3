package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Predictor estimates the latency of operator groups.
type Predictor interface {
	// Predict sets estimates[i] to the estimate of groups[i], or to zero if
	// it is unknown. It keeps neither slice and must depend on nothing but
	// its arguments and what it has observed before.
	Predict(groups []models.Group, estimates []models.Estimate)
}

// prediction asks a Predictor, about many groups in one call, without
// allocating: clear, add groups, take the estimates.
type prediction struct {
	Predictor
	beside    []models.ServiceID // what runs on other units
	spans     []models.Span      // the spans of all groups
	groups    []models.Group
	estimates []models.Estimate
	counts    asked
}

// asked counts what a predictor was asked.
type asked struct {
	Calls  int
	Groups int
}

func (p *prediction) clear() { p.spans, p.groups = p.spans[:0], p.groups[:0] }

// add asks about a group of some spans and more spans.
func (p *prediction) add(some []models.Span, more ...models.Span) {
	from := len(p.spans)
	p.spans = append(append(p.spans, some...), more...)
	p.groups = append(p.groups, models.Group{Spans: slices.Clip(p.spans[from:]), Beside: p.beside})
}

// extend adds a span to the last group.
func (p *prediction) extend(s models.Span) {
	g := &p.groups[len(p.groups)-1]
	p.spans = append(p.spans, s)
	g.Spans = p.spans[len(p.spans)-len(g.Spans)-1:]
}

// take returns the estimates of the groups that were added, in that order.
// They are valid until the next call. An unknown one is zero; of the others
// the bound is at least the latency.
func (p *prediction) take() []models.Estimate {
	if len(p.groups) == 0 {
		return nil
	}
	p.estimates = slices.Grow(p.estimates[:0], len(p.groups))[:len(p.groups)]
	clear(p.estimates)
	p.counts.Calls++
	p.counts.Groups += len(p.groups)
	p.Predict(p.groups, p.estimates)
	for i := range p.estimates {
		e := &p.estimates[i]
		e.Latency = max(e.Latency, 0)
		e.Bound = max(e.Bound, e.Latency)
		if e.Latency == 0 {
			e.Bound = 0
		}
	}
	return p.estimates
}

// alone returns the estimate of a span alone on the device.
func (p *prediction) alone(s models.Span) models.Estimate {
	p.clear()
	p.add(nil, s)
	return p.take()[0]
}

// forever is a time that does not come.
const forever = time.Duration(1<<63 - 1)

// DefaultWays and maxWays are how many candidates a search asks about at once
// if the configuration does not say, and at most.
const (
	DefaultWays = 4
	maxWays     = 64
)

// search returns the largest number in (low, high] that passes, or low if none
// does, taking it that whatever is below one that passes passes as well. It
// splits the range in ways+1 parts with one call of the predictor: the
// multi-way search of Abacus, section 6.3. propose adds the group of a number
// to what is asked; pass judges by its estimate, from the least number up,
// until one does not pass.
func (d *decision) search(low, high int, propose func(n int), pass func(n int, e models.Estimate) bool) int {
	var points [maxWays]int
	for low < high {
		count := min(d.ways, high-low)
		d.ask.clear()
		for i := range count {
			points[i] = low + (high-low+1)*(i+1)/(count+1)
			propose(points[i])
		}
		for i, e := range d.ask.take() {
			if !pass(points[i], e) {
				high = points[i] - 1
				break
			}
			low = points[i]
		}
	}
	return low
}

// within returns the last operator up to which a candidate, by the bound, takes no longer
// alone than a time, and what it takes up to there. It is one operator at least.
func (d *decision) within(c *candidate, most time.Duration) (end int, found models.Estimate) {
	end = d.search(c.rest.Start, c.rest.End-1, func(end int) {
		d.ask.add(nil, c.upTo(end))
	}, func(_ int, e models.Estimate) bool {
		if e.Bound > most {
			return false
		}
		found = e
		return true
	})
	if end == c.rest.Start {
		end++
		found = d.ask.alone(c.upTo(end))
	}
	return end, found
}

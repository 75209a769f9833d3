package overlap

import (
	"math"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// costs is a device and its predictor. A span takes the same for each of its
// operators. A group takes the sum of its spans, less what two of them gain
// that overlap: with a factor of 0.7, as long as both run they take 0.7 of
// what they would take one after the other. What costs nothing is unknown.
type costs struct {
	op     []time.Duration // of each service, at size 1
	grow   []int           // percent that each further unit of size adds
	factor map[[2]models.ServiceID]float64
	margin int           // percent by which the bound exceeds the latency
	cut    time.Duration // that a span takes more which starts in the middle
	calls  int           // groups asked about
}

func (c *costs) add(op time.Duration, grow int) {
	c.op = append(c.op, op)
	c.grow = append(c.grow, grow)
}

// set is add for a service that may have been there before.
func (c *costs) set(id models.ServiceID, op time.Duration, grow int) {
	if int(id) == len(c.op) {
		c.add(op, grow)
	}
	c.op[id], c.grow[id] = op, grow
}

func (c *costs) pair(a, b models.ServiceID, factor float64) {
	if c.factor == nil {
		c.factor = map[[2]models.ServiceID]float64{}
	}
	c.factor[[2]models.ServiceID{min(a, b), max(a, b)}] = factor
}

func (c *costs) span(s models.Span) time.Duration {
	took := c.op[s.Service] * time.Duration(s.Len()) * time.Duration(100+c.grow[s.Service]*(s.Size-1)) / 100
	if s.Start > 0 && took > 0 {
		took += c.cut
	}
	if s.Share > 0 { // on all units it takes once the time, on one 1.8 times
		took += 4 * took / time.Duration(5*s.Share)
	}
	return took
}

func (c *costs) group(g models.Group) time.Duration {
	var sum, longest time.Duration
	for i, s := range g.Spans {
		took := c.span(s)
		if took == 0 {
			return 0
		}
		sum += took
		longest = max(longest, took)
		for _, o := range g.Spans[:i] {
			if f, ok := c.factor[[2]models.ServiceID{min(s.Service, o.Service), max(s.Service, o.Service)}]; ok {
				sum -= time.Duration(math.Round((1 - f) * 2 * float64(min(took, c.span(o)))))
			}
		}
	}
	return max(sum, longest)
}

func (c *costs) estimate(g models.Group) models.Estimate {
	took := c.group(g)
	return models.Estimate{Latency: took, Bound: took * time.Duration(100+c.margin) / 100}
}

func (c *costs) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		c.calls++
		estimates[i] = c.estimate(g)
	}
}

// together runs the next operators of the most urgent batch of every service
// in one group. It ranks by deadline.
type together struct {
	edf
	operators int // of each batch in one round
}

func (p together) choose(d *decision) {
	for i := range d.settle(MaxServices) {
		d.merge(i)
		c := &d.candidates[i]
		addAlone(d, i, min(c.rest.Start+p.operators, c.rest.End))
		if d.device.alone {
			return
		}
	}
}

// addAlone adds a span whatever that takes.
func addAlone(d *decision, i, end int) {
	d.ask.clear()
	d.ask.add(d.spans, d.candidates[i].upTo(end))
	d.add(i, end, d.ask.take()[0], 0)
}

// alone adds only the least urgent batch, though it has all of them settled.
type alone struct{ edf }

func (alone) choose(d *decision) {
	last := len(d.settle(MaxServices)) - 1
	if last >= 0 {
		d.merge(last)
		addAlone(d, last, d.candidates[last].rest.Start+1)
	}
}

// idle settles every candidate and chooses none.
type idle struct{ edf }

func (idle) choose(d *decision) { d.settle(MaxServices) }

func testPolicy(t testing.TB, name string) policy {
	switch name {
	case "together":
		return together{operators: 2}
	case "alone":
		return alone{}
	}
	p := policyNamed(name)
	if p == nil {
		t.Fatalf("no policy %q", name)
	}
	return p
}

package overlap

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// costs predicts that a group takes the sum of its spans, and a span the same
// for each of its operators. What costs nothing is unknown.
type costs struct {
	op    []time.Duration // of each service, at size 1
	grow  []int           // percent that each further unit of size adds
	calls int
}

func (c *costs) add(op time.Duration, grow int) {
	c.op = append(c.op, op)
	c.grow = append(c.grow, grow)
}

func (c *costs) span(s models.Span) time.Duration {
	return c.op[s.Service] * time.Duration(s.Len()) * time.Duration(100+c.grow[s.Service]*(s.Size-1)) / 100
}

func (c *costs) Predict(groups []models.Group, estimates []models.Estimate) {
	for i, g := range groups {
		c.calls++
		var sum time.Duration
		for _, s := range g.Spans {
			sum += c.span(s)
		}
		estimates[i] = models.Estimate{Latency: sum, Bound: sum}
	}
}

// together runs the next operators of the most urgent batch of every service
// in one group, as a policy does that overlaps. It ranks by deadline.
type together struct {
	edf
	operators int // of each batch in one round
}

func (together) info() PolicyInfo { return PolicyInfo{Name: "together"} }

func (p together) choose(d *decision) {
	for i := range d.len() {
		if b, ok := d.form(i); ok {
			d.add(i, min(b.next+p.operators, b.service.Operators))
		}
	}
}

// alone adds only the least urgent batch, though it has all of them formed.
type alone struct{ edf }

func (alone) info() PolicyInfo { return PolicyInfo{Name: "alone"} }

func (alone) choose(d *decision) {
	last := -1
	for i := range d.len() {
		if b, ok := d.form(i); ok && b.deadline > d.now() {
			last = i
		}
	}
	if last >= 0 {
		d.add(last, d.candidates[last].formed.next+1)
	}
}

func testPolicy(t testing.TB, name string) policy {
	for _, p := range []policy{together{operators: 2}, alone{}} {
		if p.info().Name == name {
			return p
		}
	}
	p := policyNamed(name)
	if p == nil {
		t.Fatalf("no policy %q", name)
	}
	return p
}

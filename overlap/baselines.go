package overlap

import (
	"slices"

	"github.com/overlapd/overlapd/models"
)

// The policies below are for comparison in simulations only. Each is the daemon's scheduler
// with one rule changed inside a decision, so outside this package it would need most of what
// a decision consists of. Policies that decide by other means are in package lab/baselines.
var comparisons = []named{
	{"edf-shedding", "As edf; by Moore's rule no more queries are postponed than there is too little time for. What overlapping gains beyond load shedding is compared with it.", shedding{}},
	{"reactive", "As edf; batches of pipelines go from pool to pool without reservation.", reactive{}},
	{"clockwork", "Earliest deadline first, one batch at a time, never started if it might end late.", clockwork{}},
	{"pair", "As edf-shedding, but the most urgent batch overlaps with one whole batch of another service if the two gain. It shows what cutting and larger groups add.", pair{}},
	{"overlap-whole", "As overlap, but each round runs whole models. What cutting gains is compared with it.", overlap{whole: true}},
}

// Comparisons lists the policies that only simulations use, to compare the others with.
func Comparisons() []named { return slices.Clone(comparisons) }

// shedding serves as edf does what the triage of overlap has kept.
type shedding struct{ edf }

func (shedding) triages() overlap { return overlap{} }

// pair serves as shedding does, and adds to the most urgent batch the one whole batch of another
// service with which the predicted gain is largest, if the two gain and keep to their deadlines by
// the bound.
type pair struct{ shedding }

func (pair) choose(d *decision) {
	candidates := d.settle(maxCandidates)
	if len(candidates) == 0 {
		return
	}
	for i := range candidates {
		d.merge(i)
	}
	d.addWhole(0)
	first := &d.candidates[0]
	if d.device.alone || first.explores || first.solo.Latency == 0 {
		return
	}
	d.trials = d.trials[:0]
	d.ask.clear()
	for i := 1; i < len(candidates); i++ {
		if c := &d.candidates[i]; !c.explores && c.solo.Latency > 0 {
			d.trials = append(d.trials, i)
			d.ask.add(d.spans, c.rest)
		}
	}
	best, most := 0, 1.0
	var found models.Estimate
	for k, e := range d.ask.take() {
		c := &d.candidates[d.trials[k]]
		gain := float64(first.solo.Latency+c.solo.Latency) / float64(e.Latency)
		if e.Latency > 0 && gain > most && d.at+e.Bound <= min(d.limit, c.due) {
			best, most, found = d.trials[k], gain, e
		}
	}
	if best > 0 {
		c := &d.candidates[best]
		d.add(best, c.rest.End, found, c.solo.Latency)
		d.limit = min(d.limit, c.due)
	}
}

// reactive serves as edf does. A batch of a pipeline is formed when a device of the first
// stage is free, as large as the time allows that a plan leaves to that stage, and goes on
// to the device of the next stage that is free first (PPipe, section 7.4). It is what
// reservation is compared with.
type reactive struct{ edf }

// clockwork serves as Clockwork does on each device (Abacus, section 7.6): the
// earliest deadline first, one batch at a time, and never one that might end
// late, by the bound of its estimate. Such a query waits, since somebody may
// still learn that it is faster, and is dropped once it would be late in the
// middle of its runs.
type clockwork struct{ edf }

func (clockwork) choose(d *decision) {
	for len(d.settle(1)) > 0 {
		c := &d.candidates[0]
		if c.batch == nil && d.at+c.solo.Bound > c.deadline { // nothing else tells whether the bound is right
			c.explores = c.explores || c.service.exploration(d.device).allows(d.at, c.solo.Bound, c.head)
		}
		known := c.solo.Latency > 0 && !c.explores && !c.rank.Filler
		if !known || d.at+c.solo.Bound <= c.deadline {
			d.strict = known
			d.merge(0)
			d.addWhole(0)
			return
		}
		d.skip()
	}
}

// skip leaves the first candidate waiting, and looks at what comes next of its
// service.
func (d *decision) skip() {
	c := d.candidates[0]
	d.candidates = append(d.candidates[:0], d.candidates[1:]...)
	d.unsure = d.unsure || d.device.busy() // it may start if the round that runs ends earlier
	c.service.view.pass(&c)
	d.gather(c.service)
}

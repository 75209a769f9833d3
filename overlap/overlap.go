package overlap

import (
	"math"
	"time"

	"github.com/overlapd/overlapd/models"
)

// maxCandidates is how many services the work of one group is chosen from,
// the most urgent first. It bounds how often the predictor is asked.
const maxCandidates = 16

// overlap is our policy. The most urgent batch gets all its operators. Of the
// others, those that gain most are added as long as everybody's deadline
// allows, whole where they fit, else one of them up to some operator.
type overlap struct {
	edf
	spares sparing
}

// sparing says who of those that wait is not to be made late by a group: of
// those that would be in time if they ran right after the most urgent batch
// alone.
type sparing uint8

const (
	everybody  sparing = iota // the head of each service, and what comes behind a batch in the group
	moreUrgent                // of these, who is more urgent than somebody in the group
	nobody
)

func (overlap) info() PolicyInfo {
	return PolicyInfo{"overlap", "Overlap by headroom where it is predicted to gain, with merging, margins and best effort."}
}

// verdict is what became of a candidate of which all operators were tried.
type verdict uint8

const (
	untried verdict = iota // or another one was better
	tooLong                // somebody would be late
	useless                // it is predicted to gain nothing, or unknown
)

func (p overlap) choose(d *decision) {
	candidates := d.settle(maxCandidates)
	if len(candidates) == 0 {
		return
	}
	d.candidates = candidates
	p.form(d)
	first := &d.candidates[0]
	if first.service.BestEffort {
		d.addSlice()
	} else {
		d.addWhole(0)
	}
	if first.probes || first.solo.Latency == 0 {
		return
	}
	p.fill(d, false)
	p.fill(d, true)
	d.limit = p.room(d, 0)
}

// form merges what is to be merged, and finds out when those must start that
// wait: the most urgent work of each service, and what comes behind it.
func (p overlap) form(d *decision) {
	for i := range d.candidates {
		c := &d.candidates[i]
		c.latest = startBy(c.due, c.solo)
		d.merge(i)
	}
	if p.spares == nobody {
		return
	}
	d.ask.clear()
	for i := range d.candidates {
		c := &d.candidates[i]
		if c.next = c.follower(); c.next != nil {
			d.ask.add(nil, c.next.span(c.service.Operators))
		}
	}
	estimates := d.ask.take()
	for i := range d.candidates {
		if c := &d.candidates[i]; c.next != nil {
			c.behind = startBy(c.next.Deadline, estimates[0])
			estimates = estimates[1:]
		}
	}
}

// startBy returns when work must start to be in time. What is unknown should
// have started long ago, which makes nobody wait for it.
func startBy(deadline time.Duration, solo models.Estimate) time.Duration {
	if solo.Latency == 0 {
		return math.MinInt64
	}
	return deadline - solo.Latency
}

// room returns when the group must have ended if candidate i gets into it, for
// the sake of those in the group and of those that wait outside. Those that
// were not tried may still get into it.
func (p overlap) room(d *decision, i int) time.Duration {
	room, last := d.limit, i
	for _, j := range d.group {
		last = max(last, j)
	}
	soon := d.at + d.candidates[0].solo.Latency
	spare := func(c *candidate, r *rank, latest time.Duration) {
		if latest >= soon && !c.service.BestEffort && (p.spares == everybody || r.before(&d.candidates[last].rank)) {
			room = min(room, latest)
		}
	}
	for j := range d.candidates {
		switch c := &d.candidates[j]; {
		case p.spares == nobody:
		case c.next != nil && (i == j || c.end > 0):
			spare(c, &c.next.rank, c.behind)
		case i != j && c.end == 0 && c.verdict != untried:
			spare(c, &c.rank, c.latest)
		}
	}
	return room
}

// fill adds candidates that are best effort, or those that are not: whole ones
// first, less those for which somebody who did not get in would be late, then
// a part of one, after which there is no room for another.
func (p overlap) fill(d *decision, bestEffort bool) {
	for p.addBest(d, bestEffort) {
	}
	for len(d.group) > 1 && d.at+d.predicted.Bound > p.room(d, 0) {
		d.takeBack().verdict = tooLong
	}
	for i := range d.candidates {
		if c := &d.candidates[i]; c.verdict == tooLong && c.service.BestEffort == bestEffort && p.addPart(d, i) {
			return
		}
	}
}

// addBest asks about all candidates at once and adds the one with which the
// group gains the most solo time per time. It is false if there is none that
// fits and with which the group is predicted to end before it would if the
// candidate ran after it.
func (p overlap) addBest(d *decision, bestEffort bool) bool {
	d.trials = d.trials[:0]
	d.ask.clear()
	for i := range d.candidates {
		c := &d.candidates[i]
		switch {
		case c.end > 0 || c.verdict != untried || c.service.BestEffort != bestEffort:
		case c.probes || c.solo.Latency == 0:
			c.verdict = useless
		case d.at+max(d.predicted.Bound, c.solo.Bound) > min(p.room(d, i), c.due):
			c.verdict = tooLong
		default:
			d.trials = append(d.trials, i)
			d.ask.add(d.spans, c.rest)
		}
	}
	best, bestGain := -1, 0.0
	var found models.Estimate
	for k, e := range d.ask.take() {
		i := d.trials[k]
		c := &d.candidates[i]
		switch gain := float64(d.solo+c.solo.Latency) / float64(e.Latency); {
		case e.Latency == 0 || e.Latency >= d.predicted.Latency+c.solo.Latency:
			c.verdict = useless
		case d.at+e.Bound > min(p.room(d, i), c.due):
			c.verdict = tooLong
		case gain > bestGain:
			best, bestGain, found = i, gain, e
		}
	}
	if best < 0 {
		return false
	}
	c := &d.candidates[best]
	d.add(best, c.rest.End, found, c.solo.Latency)
	d.limit = min(d.limit, c.due)
	return true
}

// addPart adds as many operators of candidate i as fit, if that gains anything
// and what is left of it can still be in time after the group. With fewer
// operators it could not: it is in a group for less than it takes alone.
func (p overlap) addPart(d *decision, i int) bool {
	c := &d.candidates[i]
	room := p.room(d, i)
	var group models.Estimate
	end := d.search(c.rest.Start, c.rest.End-1, func(end int) {
		d.ask.add(d.spans, c.upTo(end))
	}, func(_ int, e models.Estimate) bool {
		if e.Latency == 0 || d.at+e.Bound > room {
			return false
		}
		group = e
		return true
	})
	if end == c.rest.Start {
		return false
	}
	d.ask.clear()
	d.ask.add(nil, c.upTo(end))
	d.ask.add(nil, c.from(end))
	alone := d.ask.take()
	part, left := alone[0].Latency, alone[1].Latency
	limit := min(d.limit, c.due-left)
	if part == 0 || left == 0 || group.Latency >= d.predicted.Latency+part || d.at+group.Bound > limit {
		return false
	}
	d.add(i, end, group, part)
	d.limit = limit
	return true
}

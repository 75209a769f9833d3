package overlap

import (
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
	ruthless bool // take no care of queries that wait outside the group
}

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
	if !d.fill(false) {
		d.fill(true)
	}
	d.limit = d.room(-1)
}

// form merges what is to be merged, and finds out who else must be cared for:
// the most urgent work of each service, and what waits behind it, where it is
// predicted to be in time after the most urgent batch alone. What could not
// even wait for that one is not hurt by a group.
func (p overlap) form(d *decision) {
	first := &d.candidates[0]
	soon, limit := d.at+first.solo.Latency, forever
	for i := range d.candidates {
		c := &d.candidates[i]
		c.latest, c.behind = forever, forever
		if i > 0 && !p.ruthless && !c.probes {
			c.latest = c.service.patience(c.due, c.solo, soon)
			limit = min(limit, c.latest)
		}
	}
	d.merge(0, limit)
	for i := range d.candidates[1:] {
		d.merge(i+1, forever)
	}
	if p.ruthless {
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
			c.behind = c.service.patience(c.next.Deadline, estimates[0], d.at+first.solo.Latency)
			estimates = estimates[1:]
		}
	}
}

// patience returns when work must start to meet its deadline, or forever if
// that is unknown, is too soon anyway, or was not promised.
func (sv *service) patience(deadline time.Duration, solo models.Estimate, soon time.Duration) time.Duration {
	latest := deadline - solo.Latency
	if sv.BestEffort || solo.Latency == 0 || deadline == forever || latest < soon {
		return forever
	}
	return latest
}

// room returns when the group must have ended if candidate i gets into it, for
// the sake of those in the group and of those that wait outside. Those that
// were not tried may still get into it.
func (d *decision) room(i int) time.Duration {
	room := d.limit
	for j := range d.candidates {
		switch c := &d.candidates[j]; {
		case i == j || c.end > 0:
			room = min(room, c.behind)
		case c.verdict != untried:
			room = min(room, c.latest)
		}
	}
	return room
}

// fill adds candidates that are best effort, or those that are not: whole ones
// first, less those for which somebody who did not get in would be late, then
// a part of one. It reports whether a part was added, after which there is no
// room left.
func (d *decision) fill(bestEffort bool) bool {
	for d.addBest(bestEffort) {
	}
	for len(d.group) > 1 && d.at+d.predicted.Bound > d.room(-1) {
		d.takeBack().verdict = tooLong
	}
	for i := range d.candidates {
		if c := &d.candidates[i]; c.verdict == tooLong && c.service.BestEffort == bestEffort && d.addPart(i) {
			return true
		}
	}
	return false
}

// addBest asks about all candidates at once and adds the one with which the
// group gains the most solo time per time. It is false if there is none that
// fits and with which the group is predicted to end before it would if the
// candidate ran after it.
func (d *decision) addBest(bestEffort bool) bool {
	d.trials = d.trials[:0]
	d.ask.clear()
	for i := range d.candidates {
		c := &d.candidates[i]
		switch {
		case c.end > 0 || c.verdict != untried || c.service.BestEffort != bestEffort:
		case c.probes || c.solo.Latency == 0:
			c.verdict = useless
		case d.at+max(d.predicted.Bound, c.solo.Bound) > min(d.room(i), c.due):
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
		case d.at+e.Bound > min(d.room(i), c.due):
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
func (d *decision) addPart(i int) bool {
	c := &d.candidates[i]
	room := d.room(i)
	var group, solo, rest models.Estimate
	end := d.search(c.rest.Start, c.rest.End-1, func(end int) {
		d.ask.add(d.spans, c.upTo(end))
		d.ask.add(nil, c.upTo(end))
		d.ask.add(nil, c.from(end))
	}, func(_ int, of []models.Estimate) bool {
		if of[0].Latency == 0 || d.at+of[0].Bound > room {
			return false
		}
		group, solo, rest = of[0], of[1], of[2]
		return true
	})
	limit := min(d.limit, c.due-rest.Latency)
	if end == c.rest.Start || group.Latency >= d.predicted.Latency+solo.Latency || d.at+group.Bound > limit {
		return false
	}
	d.add(i, end, group, solo.Latency)
	d.limit = limit
	return true
}

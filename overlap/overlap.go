package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// maxCandidates is how many services the work of one group is chosen from,
// the most urgent first. It bounds how often the predictor is asked.
const maxCandidates = 16

// overlap is our policy. A triage finds out which queries there is no time for. Of
// the others, the most urgent batch gets all its operators. The next ones are added as long
// as everybody's deadline allows, up to the operator where most is gained.
type overlap struct {
	edf
	whole bool // no batch ends its round before its last operator
	off   rule // rules that are switched off
}

// triages implements triager.
func (p overlap) triages() overlap { return p }

// verdict is what became of a candidate of which all operators were tried.
type verdict uint8

const (
	untried verdict = iota // or another one was added before
	unfit                  // somebody would be late, or nothing is gained
	unknown                // how long it takes, or it is known to be late
)

func (p overlap) choose(d *decision) {
	candidates := d.settle(maxCandidates)
	if len(candidates) == 0 {
		return
	}
	d.candidates, d.lax = candidates, !p.has(ruleBound)
	p.explore(d)
	switch v := d.device; {
	case v.units == 1:
		p.together(d)
	case v.alone || v.startable() < v.units:
		p.share(d)
	default:
		p.together(d)
		p.apart(d)
	}
}

// together forms a group that has the whole device.
func (p overlap) together(d *decision) {
	for i := range d.candidates {
		d.merge(i)
	}
	first := &d.candidates[0]
	if first.rank.Filler && !p.whole {
		p.addSlice(d)
	} else {
		d.addWhole(0)
	}
	if first.explores || first.solo.Latency == 0 {
		return
	}
	if !d.device.alone {
		p.fill(d, false)
		p.fill(d, true)
		if p.has(ruleYield) {
			p.yield(d)
		}
	}
	if p.has(ruleSlice) {
		p.slice(d)
	}
	d.limit = p.room(d, 0)
}

// explore moves the first candidate that explores before all others of its priority. Its turn
// by deadline would come too late for it to be in time, or never where a triage postpones it.
func (overlap) explore(d *decision) {
	i := slices.IndexFunc(d.candidates, func(c candidate) bool { return c.explores && c.batch == nil })
	if i > 0 && d.candidates[i].rank.Priority <= d.candidates[0].rank.Priority {
		d.promote(i)
	}
}

// yielding is how many times as much a group of two must gain for the most urgent
// batch to go on with the next round instead of ending with it: it holds those up that
// wait behind it, and what it leaves may find nobody to run beside.
const yielding = 1.25

// yield has the most urgent batch go as far as a shorter candidate takes, and on with the
// next round, where the two gain more so than the group as it is and it can still be in
// time: what runs on when all others have ended overlaps nothing, and on a processor
// leaves cores idle. A group of two must gain yielding times as much for that. The
// shorter candidate that is most urgent is tried.
func (p overlap) yield(d *decision) {
	first, shorter := &d.candidates[0], 0
	for i := range d.candidates {
		c := &d.candidates[i]
		if c.solo.Latency > 0 && c.solo.Latency < first.solo.Latency && !c.explores && !c.rank.Filler && !c.postponed {
			shorter = i
			break
		}
	}
	if shorter == 0 || first.rank.Filler || len(d.group) > 2 || len(d.group) == 2 && d.group[1] != shorter {
		return
	}
	gain := float64(d.solo) / float64(d.predicted.Latency)
	if len(d.group) == 2 {
		gain *= yielding
	}
	was := d.progress
	end := d.candidates[shorter].end
	for len(d.group) > 0 {
		d.takeBack()
	}
	d.addWhole(shorter)
	if d.at+d.predicted.Bound <= p.room(d, 0) && p.addPart(d, 0, gain) {
		return
	}
	d.takeBack()
	d.addWhole(0)
	if end > 0 {
		d.add(shorter, end, was.predicted, was.solo-d.solo)
		d.progress = was
	}
}

// What a batch that is alone in its round may take at once: a part of the least target of the other
// services that get queries. It is no less than some times what a round costs, so that cutting takes
// a twentieth of the time at most, and no more than others: however late the targets are, what runs
// alone leaves a part of the device idle, on two cores a third of it. A batch of which hardly more is
// left runs to its end.
const (
	sliceShare = 1.0 / 24
	leastSlice = 20  // rounds
	mostSlice  = 200 // rounds
	sliceTail  = 2.0 // slices
)

// slice has the most urgent batch, where nobody is found to run beside it, end the round
// early and go on in the next one. So what arrives for another service need not wait for
// its end, and runs beside what is left of it: near the peak load of two services of the
// A100 the device is alone with one query for a third to two thirds of the time. Parts
// may take longer than the whole, so it is sliced only where it can be in time though
// each slice loses as much as the first.
func (p overlap) slice(d *decision) {
	c, least := &d.candidates[0], forever
	if p.whole || len(d.group) > 1 || c.rank.Filler {
		return
	}
	for _, sv := range d.s.backlog.services {
		if sv != c.service && sv.sorted() && sv.asked() {
			least = min(least, sv.QoSTarget)
		}
	}
	most := max(time.Duration(sliceShare*float64(least)), leastSlice*d.s.backlog.roundTime)
	if d.s.backlog.roundTime > 0 {
		most = min(most, mostSlice*d.s.backlog.roundTime)
	}
	if least == forever || float64(c.solo.Latency) <= sliceTail*float64(most) {
		return
	}
	end, found := d.within(c, most)
	left := d.ask.alone(c.from(end)).Latency
	lost := float64(found.Latency + d.s.backlog.roundTime + left - c.solo.Latency)
	if lost*float64(c.solo.Latency) > float64(c.due-d.at-c.solo.Latency)*float64(found.Latency) {
		return
	}
	d.takeBack()
	d.add(0, end, found, found.Latency)
	d.limit = min(d.limit, c.due-left)
}

// room returns when the group must have ended if candidate i gets into it, for the sake of those in
// the group, of those that have reserved the device, and of what a triage has kept of higher
// priorities than the candidate's.
func (p overlap) room(d *decision, i int) time.Duration {
	room := d.limit
	if slack := d.sorting.above(&d.candidates[i].rank); slack < forever {
		room = min(room, d.at+d.solo+slack)
	}
	if d.candidates[i].end == 0 || len(d.group) > 1 {
		soon := d.at + d.candidates[0].solo.Latency
		room = min(room, d.s.backlog.routes.spared(d, d.candidates[i].batch, soon))
	}
	return room
}

// fill adds candidates that are best effort, or those that are not: first those that fit whole, then
// a part of one that does not.
func (p overlap) fill(d *decision, bestEffort bool) {
	for p.addFirst(d, bestEffort) {
	}
	gain := float64(d.solo) / float64(d.predicted.Latency)
	for i := range d.candidates {
		if c := &d.candidates[i]; c.verdict == unfit && c.rank.Filler == bestEffort && p.addPart(d, i, gain) {
			return
		}
	}
}

// addFirst asks about all candidates at once and adds the most urgent one that fits whole and with
// which the group is predicted to end before it would if the candidate ran after it: whole, or up
// to the operator where the group gains still more. It is false if there is none.
func (p overlap) addFirst(d *decision, bestEffort bool) bool {
	p.tryWhole(d, bestEffort)
	first, found := -1, models.Estimate{}
	for k, e := range d.ask.take() {
		i := d.trials[k]
		c := &d.candidates[i]
		limit := min(p.room(d, i), c.due)
		switch {
		case e.Latency == 0:
			c.verdict = unknown
		case e.Latency >= d.predicted.Latency+c.solo.Latency || d.at+d.bound(e) > limit:
			d.turnDown(c, e, limit)
		case first < 0:
			first, found = i, e
		}
	}
	if first < 0 {
		return false
	}
	c := &d.candidates[first]
	gain := float64(d.solo+c.solo.Latency) / float64(found.Latency)
	if p.has(ruleRoomy) && float64(found.Latency) > roomy*float64(d.predicted.Latency) && p.addPart(d, first, gain) {
		return true
	}
	d.add(first, c.rest.End, found, c.solo.Latency)
	d.limit = min(d.limit, c.due)
	return true
}

// tryWhole asks about the group with each candidate that may get into it.
func (p overlap) tryWhole(d *decision, bestEffort bool) {
	d.trials = d.trials[:0]
	d.ask.clear()
	for i := range d.candidates {
		c := &d.candidates[i]
		if c.end > 0 || c.verdict != untried || c.rank.Filler != bestEffort {
			continue
		}
		limit, least := min(p.room(d, i), c.due), max(d.bound(d.predicted), d.bound(c.solo))
		switch {
		case c.explores || c.solo.Latency == 0:
			c.verdict = unknown
		case d.at+least > limit:
			d.turnDown(c, models.Estimate{Bound: least}, limit)
		default:
			d.trials = append(d.trials, i)
			d.ask.add(d.spans, c.rest)
		}
	}
}

// roomy is how much longer than without it a group with a candidate may take
// for the candidate to count as whole beside the others: to end it sooner would
// not gain much.
const roomy = 1.2

// part is a candidate up to some operator, in the group.
type part struct {
	end   int
	group models.Estimate
	alone time.Duration // by which less is left of the candidate
	gain  float64
}

// partLevels is how often the end of a part is searched for: after the third time
// it is known to a part in (ways+1)³/4 of the operators. The search ends before, if
// around the best end it has found one that gains less than refining times as much,
// as it does unless the gain has a narrow peak.
const (
	partLevels = 3
	refining   = 1.01
)

// addPart adds candidate i up to the operator where the group gains most, if
// that is more than a gain, it is then predicted to end before it would if the
// part ran after it, and what is left of the candidate can still be in time
// after the group. Ends are tried some at a time, first over all operators, then
// around the best.
func (p overlap) addPart(d *decision, i int, gain float64) bool {
	if p.whole || !p.has(ruleParts) {
		return false
	}
	c := &d.candidates[i]
	var best part
	low, high := c.rest.Start, c.rest.End
	for step, level, before := high-low, 0, 0.0; step > 1 && level < partLevels && best.gain >= refining*before; level++ {
		before = best.gain
		step = min(step-1, (high-low+d.ways)/(d.ways+1))
		if p.tryParts(d, i, low, high, step, &best); best.end == 0 {
			high = min(low+step, high)
		} else {
			low, high = max(best.end-step, low), min(best.end+step, high)
		}
	}
	if best.gain <= gain || best.group.Latency >= d.predicted.Latency+best.alone {
		return false
	}
	limit := min(d.limit, c.due-(c.solo.Latency-best.alone))
	if d.at+d.bound(best.group) > limit {
		return false
	}
	d.add(i, best.end, best.group, best.alone)
	d.limit = limit
	return true
}

// tryParts asks about candidate i up to every step-th operator in (low, high),
// and takes what is better than the best. A part is worth the time by which less is left
// of the candidate, and not what it takes itself: to cut may cost something, and what is left takes a
// further round.
func (p overlap) tryParts(d *decision, i, low, high, step int, best *part) {
	c, room := &d.candidates[i], p.room(d, i)
	d.ask.clear()
	for end := low + step; end < high; end += step {
		d.ask.add(d.spans, c.upTo(end))
		d.ask.add(nil, c.from(end))
	}
	estimates := d.ask.take()
	for end := low + step; end < high; end += step {
		group, left := estimates[0], estimates[1].Latency
		estimates = estimates[2:]
		alone := c.solo.Latency - left - d.s.backlog.roundTime
		if group.Latency == 0 || left == 0 || alone <= 0 {
			continue
		}
		gain := float64(d.solo+alone) / float64(group.Latency)
		if gain > best.gain && d.at+d.bound(group) <= min(room, c.due-left) {
			*best = part{end, group, alone, gain}
		}
	}
}

// bestEffortShare is what part of the least slack of the other services a
// group of best-effort work may take. A query of such a service that arrives
// meanwhile has the rest of its slack left.
const bestEffortShare = 0.5

// addSlice puts operators of candidate 0, which is best effort, into the group
// as its first span: nothing else waits, so as many as are predicted to end
// within the allowance, and one at least.
func (overlap) addSlice(d *decision) {
	c := &d.candidates[0]
	allowance := allowance(d)
	if d.limit = forever; allowance < forever {
		d.limit = d.at + allowance
	}
	if c.solo.Bound <= allowance {
		d.addWhole(0)
		return
	}
	end, found := d.within(c, allowance)
	d.add(0, end, found, found.Latency)
}

// allowance returns how long best-effort work may hold the device against the
// queries of other services that may arrive: a share of the least slack, which
// is the QoS target less the time alone of a query like the latest.
func allowance(d *decision) time.Duration {
	d.ask.clear()
	for _, sv := range d.s.backlog.services {
		if sv.promises() {
			d.ask.add(nil, sv.typical())
		}
	}
	estimates := d.ask.take()
	least := forever
	for _, sv := range d.s.backlog.services {
		if !sv.promises() {
			continue
		}
		if slack := sv.QoSTarget - estimates[0].Latency; slack > 0 {
			least = min(least, slack)
		}
		estimates = estimates[1:]
	}
	if least == forever {
		return forever
	}
	return time.Duration(bestEffortShare * float64(least))
}

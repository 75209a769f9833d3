package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// maxShares is how many shares a batch may have of a device of MaxUnits units: 1, 2, 4 and so on, and
// all of them.
const maxShares = 8

// menu is the isolated latency of a candidate on each share of its device.
type menu [maxShares]models.Estimate

// on returns the estimate on a share.
func (m *menu) on(v *device, share int) models.Estimate { return m[slices.Index(v.shares, share)] }

// thrifty returns the share on which a span keeps the fewest units the shortest time and ends within
// a time, how long it takes there, and how long on the fastest share, which it is if there is none.
// Where groups are formed it is the whole device, which a batch has unless shares gain more.
func (v *device) thrifty(s models.Span, within time.Duration) (share int, took, least time.Duration) {
	p, shares := &v.predict, v.shares
	if !v.alone {
		shares = shares[len(shares)-1:]
	}
	p.clear()
	for _, s.Share = range shares {
		p.add(nil, s)
	}
	best, area, fits := 0, forever, false
	estimates := p.take()
	least = estimates[0].Latency
	for i, e := range estimates {
		least = min(least, e.Latency)
		of := e.Latency * time.Duration(v.width(shares[i]))
		switch ok := e.Latency <= within; {
		case ok && (!fits || of < area), !ok && !fits && e.Latency < estimates[best].Latency:
			best, area, fits = i, of, ok
		}
	}
	return shares[best], estimates[best].Latency, least
}

// share starts a batch on a device of several units, beside those that run there. It is the most
// urgent one that can be in time on the units that are free. Of the shares on which it can, it gets
// the one that takes least of the device: the units that it has for the time that it takes. What
// nothing else that waits could use then makes its share larger, where that gains more than what may
// come meanwhile would gain on it. So
// a query that is alone has the whole device, and where many wait each runs as efficiently as it
// may. Its round ends early as that of any batch that runs alone, see slice, and the rest goes on
// with another share.
//
// A batch that is in time only on more units than are free waits for them. What comes after it must
// have ended by then.
func (p overlap) share(d *decision) {
	free, limit := d.device.startable(), forever
	first, share, others := -1, 0, 0 // others is the units that other services could use
	for i := range d.candidates {
		c := &d.candidates[i]
		at, width, ok := p.fitting(d, c, free, limit)
		switch {
		case ok && first < 0:
			first, share = i, at
			free -= width
		case ok:
			more := min(width*(1+c.further()), free)
			others += more
			free -= more
		case first < 0 && !c.rank.Filler && !c.postponed && d.device.width(c.members[0].Takes.Share) > free && p.has(ruleWait):
			limit = min(limit, c.due-c.solo.Bound)
		}
		if free == 0 {
			break
		}
	}
	if first < 0 {
		return
	}
	d.promote(first)
	c := &d.candidates[0]
	p.assign(d, c, share)
	width := d.device.width(share)
	// On a CPU the queries are spread over the free cores. Where spans also overlap, a larger batch gains
	// more than several small ones side by side: splitting them costs 2 % of the load (docs/decisions/rules.md).
	if places := (d.device.units - others) / width; places > 1 && d.device.alone {
		c.most = (c.service.queue.len() + places - 1) / places
	}
	d.limit = limit
	d.merge(0)
	p.occupy(d, width+max(free-width*c.further(), 0))
}

// occupy starts the first candidate on its share, or on a larger one of at most so many units.
func (p overlap) occupy(d *decision, units int) {
	c := &d.candidates[0]
	if p.has(ruleWiden) {
		p.widen(d, c, units)
	}
	if c.rank.Filler && !p.whole {
		p.addSlice(d)
	} else {
		d.addWhole(0)
	}
	if p.has(ruleSlice) && !c.explores && float64(c.solo.Latency) > bestEffortShare*float64(p.leastSlack(d, c)) {
		p.slice(d)
	}
}

// apart starts the most urgent batch of a group on a share, if all candidates on shares of their own gain
// more than the group. A batch gains the time that it takes alone on the whole device, per time that it
// takes on the cheapest share that meets its deadline. The other batches start in the next rounds.
func (p overlap) apart(d *decision) {
	if len(d.group) == 0 || d.candidates[0].explores || d.candidates[0].rank.Filler {
		return
	}
	d.ask.clear()
	for i := range d.candidates {
		d.askAlone(&d.candidates[i])
	}
	estimates, shares := d.ask.take(), len(d.device.shares)
	free, gain, first := d.device.units, 0.0, 0
	for i := range d.candidates {
		c := &d.candidates[i]
		copy(c.menu[:], estimates[i*shares:(i+1)*shares])
		share, width, ok := p.fitting(d, c, free, forever)
		if i == 0 {
			first = share
		}
		if alone := c.menu[shares-1].Latency; ok && !c.explores && alone > 0 {
			gain += float64(alone) / float64(c.menu.on(d.device, share).Latency)
			free -= width
		}
	}
	if first == 0 || gain <= float64(d.solo)/float64(d.predicted.Latency) {
		return
	}
	for len(d.group) > 0 {
		d.takeBack()
	}
	c := &d.candidates[0]
	p.assign(d, c, first)
	p.occupy(d, d.device.width(first)+free)
}

// crowd is what else there is to run while a device of several units is busy.
type crowd struct {
	At     time.Duration // up to when it is known
	Busy   time.Duration // that something ran or waited
	Others time.Duration // the same for each thing but the first
	Rounds int           // that have ended
	Narrow int           // batches on a part of the device since one had all of it
}

// crowdRounds is how many rounds it takes until what was before them counts half.
const crowdRounds = 4

// pass takes in that so many things have run or waited up to now.
func (c *crowd) pass(now time.Duration, things int) {
	if things > 0 {
		c.Busy += now - c.At
		c.Others += (now - c.At) * time.Duration(things-1)
	}
	c.At = now
}

// ended takes in that a round has ended.
func (c *crowd) ended() {
	if c.Rounds++; c.Rounds == crowdRounds {
		c.Busy, c.Others, c.Rounds = c.Busy/2, c.Others/2, 0
	}
}

// started takes in that a batch starts on a share.
func (c *crowd) started(share int) {
	if c.Narrow++; share == 0 {
		c.Narrow = 0
	}
}

// mean returns how many other things there are on average while there is one.
func (c *crowd) mean() float64 {
	if c.Busy == 0 {
		return 0
	}
	return float64(c.Others) / float64(c.Busy)
}

// further returns how many more batches like that of a candidate its service could start.
func (c *candidate) further() int {
	waiting, started := c.service.queue.len(), c.service.view.replica.paused.len()
	if c.batch != nil {
		return waiting + started - 1
	}
	n := len(c.members)
	return (waiting-1)/n + started
}

// leastSlack returns how long a query could wait that arrives now for another service than that of a
// candidate: the least of their targets less what the latest of its queries was predicted to take.
func (overlap) leastSlack(d *decision, c *candidate) time.Duration {
	least := forever
	for _, sv := range d.s.backlog.services {
		if slack := sv.QoSTarget - sv.Last.Alone; sv != c.service && sv.sorted() && sv.Last.Alone > 0 && slack > 0 {
			least = min(least, slack)
		}
	}
	return least
}

// assign gives a candidate a share.
func (overlap) assign(d *decision, c *candidate, share int) {
	c.rest.Share, c.solo = share, c.menu.on(d.device, share)
	c.aim(d.at + c.solo.Latency)
}

// fitting returns the share of which a candidate takes least of the device, of those on which it ends
// by a time and in time: by its bound, or else at least by its latency. What is not known, or
// explores, starts on the most units that are free, or only on all that could make it end sooner.
func (overlap) fitting(d *decision, c *candidate, free int, limit time.Duration) (share, width int, ok bool) {
	area, sure := forever, false
	for i, of := range d.device.shares {
		e, w := c.menu[i], d.device.width(of)
		if w > free {
			continue
		}
		switch {
		case c.solo.Latency == 0:
			share, width, ok = of, w, true
			continue
		case e.Latency == 0, d.at+e.Bound > limit:
			continue
		case c.explores:
			if e.Latency == c.solo.Latency {
				return of, w, true
			}
			continue
		case !c.rank.Filler && d.at+e.Latency > c.due:
			continue
		}
		certain, taken := c.rank.Filler || d.at+e.Bound <= c.due, e.Latency*time.Duration(w)
		if !ok || certain && !sure || certain == sure && taken < area {
			share, width, area, sure, ok = of, w, taken, certain, true
		}
	}
	return share, width, ok
}

// wideAgain is after how many batches on a part of the device one has all of it that is thought to gain
// nothing there: a model that was measured on all units while others were busy would never be measured
// there again.
const wideAgain = 8

// widen gives a batch the share of at most so many units on which most time is gained per time: what
// the batch gains on more units, less what others would gain on them that come while it runs, each as
// much as it takes alone. As many come as there were of late.
func (overlap) widen(d *decision, c *candidate, units int) {
	if c.explores || c.solo.Latency == 0 || units <= d.device.width(c.rest.Share) {
		return
	}
	d.ask.clear()
	d.askAlone(c)
	estimates := d.ask.take()
	all, narrow := estimates[len(estimates)-1].Latency, c.solo.Latency
	if units == d.device.units && d.device.crowd.Narrow >= wideAgain && all >= narrow && d.at+all <= c.due {
		c.rest.Share, c.solo = 0, estimates[len(estimates)-1]
		c.aim(d.at + all)
		return
	}
	width, best := d.device.width(c.rest.Share), 1.0
	for i, share := range d.device.shares {
		w, e := d.device.width(share), estimates[i]
		if w <= width || w > units || e.Latency == 0 {
			continue
		}
		rate := float64(narrow)/float64(e.Latency) - min(d.device.crowd.mean(), float64(w-width))
		if rate > best {
			best, c.rest.Share, c.solo = rate, share, e
		}
	}
	c.aim(d.at + c.solo.Latency)
}

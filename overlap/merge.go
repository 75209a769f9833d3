package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// mergeScan is how many waiting queries are looked at to fill one batch.
const mergeScan = 64

// joiner is a waiting query that may be in a batch.
type joiner struct {
	*query
	solo time.Duration // the time it takes alone
	size int           // the size of the batch up to here
}

// merge fills the batch of candidate i, if it is one to be formed, with
// queries that wait behind its head, have the same shape and fit under
// MaxBatch; for a service with variants, no more of them than its share for each device, for
// which the variant is selected. It looks for the largest batch that ends, see reach, before
// the deadline of everybody in it, and takes, of the sizes that it asked about, the one that
// saves most time against running its queries one after another; if none saves any, the head
// stays alone. So does a query that is to run by itself. A service on the ladder rounds down:
// who is left heads the next batch, while a batch padded to the next size would take as long as
// a full one.
func (d *decision) merge(i int) {
	c := &d.candidates[i]
	if c.batch != nil || c.head.Apart || c.head.Size >= c.service.MaxBatch || c.solo.Latency == 0 {
		return
	}
	if d.scan(c); len(d.joining) == 1 {
		return
	}
	best, bestGain, spared := c.head.Size, 1.0, min(d.limit, d.s.backlog.routes.spared(d, nil, d.at))
	var found models.Estimate
	d.sizes = append(d.sizes[:0], c.head.Size)
	for _, j := range d.joining[1:] {
		if j.size <= c.service.MaxBatch && c.service.allows(j.size) {
			d.sizes = append(d.sizes, j.size)
		}
	}
	propose := func(n int) {
		s := c.rest
		s.Size = d.sizes[n]
		d.ask.add(nil, s)
	}
	judge := func(n int, e models.Estimate) bool {
		size := d.sizes[n]
		apart, ok := d.apart(size, d.at+d.reach(e))
		if !ok || e.Latency == 0 || d.at+e.Bound > spared {
			return false
		}
		if gain := float64(apart) / float64(e.Latency); gain > bestGain {
			best, bestGain, found = size, gain, e
		}
		return true
	}
	d.search(0, len(d.sizes)-1, propose, judge)
	if bestGain == 1 {
		return
	}
	c.rest.Size = best
	c.take(d, best, found)
}

// scan lists the head of a candidate and those that may join it, until those of them fill the
// largest batch that have time for it. Others are listed for smaller batches.
func (d *decision) scan(c *candidate) {
	head, queue, due := c.head, &c.service.view.queue, d.at+c.head.Takes.Full
	d.joining = append(d.joining[:0], joiner{head, c.solo.Latency, head.Size})
	d.ask.clear()
	queue.pass()
	last := head
	for size, all, scanned := head.Size, head.Size, 1; size < c.service.MaxBatch && scanned < mergeScan; scanned++ {
		q, ok := c.service.view.anyQuery()
		if !ok {
			break
		}
		queue.pass()
		share := c.service.family.share
		if len(d.joining) == c.most || share > 0 && len(d.joining) == share || !q.mergesWith(head) || size+q.Size > c.service.MaxBatch {
			continue
		}
		if all += q.Size; q.Deadline >= due {
			size += q.Size
		}
		d.joining = append(d.joining, joiner{query: q, size: all})
		if q.Size != last.Size {
			d.ask.add(nil, q.span(c.service.Operators))
		}
		last = q
	}
	estimates := d.ask.take()
	for i := range d.joining[1:] {
		j, last := &d.joining[i+1], &d.joining[i]
		if j.solo = last.solo; j.Size != last.Size {
			j.solo, estimates = estimates[0].Latency, estimates[1:]
		}
	}
}

// reach returns within what time the members of a batch must be in time: the bound of its estimate,
// or, where no other service has work that could be late with them, the latency.
func (d *decision) reach(e models.Estimate) time.Duration {
	if len(d.candidates) == 1 && d.device.units == 1 {
		return e.Latency
	}
	return e.Bound
}

// joins reports whether a batch that has a size so far, is to reach another
// and ends at some time can take in a query.
func (j *joiner) joins(size, reach int, end time.Duration) bool {
	return size+j.Size <= reach && j.Deadline >= end
}

// apart returns the time that the members of a batch of the given size take
// one after another, if the batch would end at a time. It is false if the
// head, or so many others that the size is not reached, would be late.
func (d *decision) apart(reach int, end time.Duration) (apart time.Duration, ok bool) {
	size := 0
	for i := range d.joining {
		if j := &d.joining[i]; j.joins(size, reach, end) {
			size += j.Size
			apart += j.solo
		} else if i == 0 {
			return 0, false
		}
	}
	return apart, size == reach
}

// take makes a batch of the given size of those that were scanned.
func (c *candidate) take(d *decision, reach int, solo models.Estimate) {
	from, size, end := len(d.members), 0, d.at+d.reach(solo)
	for i := range d.joining {
		if j := &d.joining[i]; j.joins(size, reach, end) {
			size += j.Size
			d.members = append(d.members, j.query)
			c.deadline = max(c.deadline, j.Deadline)
		}
	}
	c.members = slices.Clip(d.members[from:])
	c.solo = solo
	c.aim(end)
}

// mostBackToBack is how long queries may run back to back, in times of a round. The first one is
// answered with the last, and a query that arrives meanwhile waits for all of them.
const mostBackToBack = 5

// lengthen makes the only query of a group a batch that runs back to back, if its service merges
// none and it is short: the queries behind it run in the same round, for at most mostBackToBack.
// None of them may be late for it, nor pass other work, and each device must get its share, which
// for a service with variants is the share that this variant was selected for.
func (d *decision) lengthen() {
	if len(d.group) != 1 || d.s.backlog.roundTime == 0 {
		return
	}
	i := d.group[0]
	c := &d.candidates[i]
	e, view, limit, from := c.solo, &c.service.view, d.limit, len(d.members)
	if c.batch != nil || c.end < c.service.Operators || c.service.MaxBatch > 1 || c.explores || e.Latency == 0 {
		return
	}
	places := c.service.places() * d.device.units
	most := min(mergeScan, int(mostBackToBack*d.s.backlog.roundTime/e.Latency), (c.service.queue.len()+places-1)/places)
	if share := c.service.family.share; share > 0 {
		most = min(most, share)
	}
	started, paused := view.started()
	for q, ok := c.head, true; ok && len(d.members)-from < most; q, ok = view.query() {
		if view.second || q.Size > 1 || !q.mergesWith(c.head) || d.outranks(i, q) || paused && started.rank.before(&q.Rank) {
			break
		}
		if !q.Rank.Filler {
			limit = min(limit, q.Deadline)
		}
		if end := d.at + time.Duration(len(d.members)-from+1)*e.Bound; end > limit {
			break
		}
		if top, _ := view.query(); top == q {
			view.queue.pass()
		}
		d.members = append(d.members, q)
		c.deadline = max(c.deadline, q.Deadline)
	}
	if n := len(d.members) - from; n > 1 {
		c.members = slices.Clip(d.members[from:])
		c.solo = repeated(e, n)
		d.predicted, d.solo, d.limit = c.solo, c.solo.Latency, limit
	}
}

// repeated returns the estimate of work that runs some times, one after another.
func repeated(e models.Estimate, times int) models.Estimate {
	return models.Estimate{Latency: time.Duration(times) * e.Latency, Bound: time.Duration(times) * e.Bound}
}

// outranks reports whether a candidate besides the i-th comes before a query.
func (d *decision) outranks(i int, q *query) bool {
	for k := range d.candidates {
		if k != i && d.candidates[k].rank.before(&q.Rank) {
			return true
		}
	}
	return false
}

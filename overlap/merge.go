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
// which the variant is selected. It looks for the largest batch that ends, by its bound, before the
// deadline of everybody in it, and of the sizes that it asked about takes the
// one that saves most time against running its queries one after another; if
// none saves any, the head stays alone. So does a query that is to run by
// itself.
func (d *decision) merge(i int) {
	c := &d.candidates[i]
	if c.batch != nil || c.head.Apart || c.head.Size >= c.service.MaxBatch || c.solo.Latency == 0 {
		return
	}
	if d.scan(c); len(d.joining) == 1 {
		return
	}
	best, bestGain, spared, z := c.head.Size, 1.0, d.device.reserved.spared(d, nil, d.at), d.sizing(c)
	var found candidate
	whole := func(n int) candidate {
		w := candidate{service: c.service, rest: c.rest, filled: c.filled}
		if size := d.joining[n].size; !c.filled || size != c.rest.Size && !c.fits(c.rest.Size, size) {
			w.rest.Size, w.filled = size, false
			d.sized(&w)
		}
		return w
	}
	judge := func(n int, e models.Estimate) bool {
		size, took := d.joining[n].size, e.Latency
		if e.Resizing > 0 {
			if z.Cost = e.Resizing; z.outgrown() && size >= 2*z.Size {
				took -= e.Resizing
			}
		}
		apart, ok := d.apart(size, d.at+e.Bound)
		if !ok || e.Latency == 0 || d.at+e.Bound > spared {
			return false
		}
		if gain := float64(apart) / float64(took); gain > bestGain {
			best, bestGain, found = size, gain, whole(n)
			found.solo = e
		}
		return true
	}
	if c.filled { // the search might pass the size that costs no change
		for n := len(d.joining) - 1; n > 0; n-- {
			if d.joining[n].size <= c.rest.Size && whole(n).filled {
				judge(n, c.solo)
				break
			}
		}
	}
	d.search(0, len(d.joining)-1, func(n int) { d.ask.add(nil, whole(n).rest) }, judge)
	if bestGain == 1 {
		c.leaves(d.joining[1].query)
		return
	}
	c.rest, c.filled = found.rest, found.filled
	c.take(d, best, found.solo)
}

// scan lists the head of a candidate and those that may join it, up to the
// largest batch.
func (d *decision) scan(c *candidate) {
	head, queue := c.head, &c.service.view.queue
	d.joining = append(d.joining[:0], joiner{head, c.solo.Latency - c.solo.Resizing, head.Size})
	d.ask.clear()
	queue.pass()
	for size, scanned := head.Size, 1; size < c.service.MaxBatch && scanned < mergeScan; scanned++ {
		q, ok := c.service.view.anyQuery()
		if !ok {
			break
		}
		queue.pass()
		full := c.service.family.share > 0 && len(d.joining) == c.service.family.share
		if full || !q.mergesWith(head) || size+q.Size > c.service.MaxBatch {
			c.leaves(q)
			continue
		}
		size += q.Size
		d.joining = append(d.joining, joiner{query: q, size: size})
		if last := d.joining[len(d.joining)-2]; q.Size != last.Size {
			d.ask.add(nil, q.span(c.service.Operators))
		}
	}
	estimates := d.ask.take()
	for i := range d.joining[1:] {
		j, last := &d.joining[i+1], &d.joining[i]
		if j.solo = last.solo; j.Size != last.Size {
			j.solo, estimates = estimates[0].Latency, estimates[1:]
		}
	}
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
	from, size, end := len(d.members), 0, d.at+solo.Bound
	for i := range d.joining {
		if j := &d.joining[i]; j.joins(size, reach, end) {
			size += j.Size
			d.members = append(d.members, j.query)
			c.deadline = max(c.deadline, j.Deadline)
		} else {
			c.leaves(j.query)
		}
	}
	c.members = slices.Clip(d.members[from:])
	c.solo = solo
	c.aim(end)
}

// leaves remembers a query that waits behind the batch and is not postponed.
func (c *candidate) leaves(q *query) {
	if c.service.view.postpones(q.postponed) {
		return
	}
	if c.next == nil || q.Rank.before(&c.next.Rank) {
		c.next = q
	}
}

// follower returns the most urgent query that waits behind the batch and is
// not postponed, nil if there is none.
func (c *candidate) follower() *query {
	if c.next != nil || c.service.view.second {
		return c.next
	}
	q, ok := c.service.view.query()
	if ok && q == c.head {
		c.service.view.queue.pass()
		q, _ = c.service.view.query()
	}
	return q
}

// lengthen makes a group of one query whose service merges none a series, if it is short: those
// that come next are run in the same round, one after another, for at most Config.Series.
// Nobody is to be late for it, no other work passed, and each device to have its share, which
// of a service with variants is that for which this one was selected.
func (d *decision) lengthen() {
	if len(d.group) != 1 || d.s.seriesTime == 0 {
		return
	}
	i := d.group[0]
	c := &d.candidates[i]
	e, most := c.solo, mergeScan
	if places := c.service.places(); e.Latency > 0 && places > 0 {
		most = min(most, int(d.s.seriesTime/e.Latency), (c.service.queue.len()+places-1)/places)
	}
	if share := c.service.family.share; share > 0 {
		most = min(most, share)
	}
	whole := c.batch == nil && c.end == c.service.Operators && len(c.service.Pipelines) == 0
	if !whole || c.service.MaxBatch > 1 || c.head.Size > 1 || c.head.Apart || c.explores || c.filled || e.Latency == 0 || most < 2 {
		return
	}
	view, limit, from := &c.service.view, d.limit, len(d.members)
	started, paused := view.started()
	if !c.rank.Filler {
		limit = min(limit, c.head.Deadline)
	}
	d.members = append(d.members, c.head)
	if q, _ := view.query(); q == c.head {
		view.queue.pass()
	}
	for n := 2; n <= most; n++ {
		q, ok := view.query()
		if !ok || view.second || q.Size > 1 || !q.mergesWith(c.head) || d.outranks(i, q) || paused && started.rank.before(&q.Rank) {
			break
		}
		if !q.Rank.Filler {
			limit = min(limit, q.Deadline)
		}
		if end := d.at + time.Duration(n)*e.Bound; end > limit {
			break
		}
		view.queue.pass()
		d.members = append(d.members, q)
		c.deadline = max(c.deadline, q.Deadline)
	}
	n := len(d.members) - from
	if n < 2 {
		return
	}
	c.members = slices.Clip(d.members[from:])
	c.rest.Size, c.rest.Series = n, true
	c.solo = d.ask.alone(c.rest)
	c.aim(d.at + c.solo.Bound)
	d.takeBack()
	d.add(i, c.rest.End, c.solo, c.solo.Latency)
	d.limit = limit
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

// sizing is which batch size a service has on a device, and whether it should be another.
// Where an engine prepares itself for one size, as cuDNN plans each convolution, a change
// costs more than batches of a better size save at once. So a size stays, and smaller
// batches are filled up to it, until what larger ones would have saved since it came
// amounts to what the change costs: the rule for renting skis, which pays at most twice
// what the best choice in hindsight would. It does not become smaller again to save time:
// while there is little to do that is not needed, and each change holds up everybody.
type sizing struct {
	Size   int           // of the batch that its worker ran last, 0 for none
	Cost   time.Duration // what another size was last predicted to cost, 0 if nothing
	Regret time.Duration // what the largest batches would have saved since, while enough waited
}

// sizing returns that of a candidate's service on the device of the decision.
func (d *decision) sizing(c *candidate) *sizing { return &c.service.replicas[d.device.index].sizing }

// sized sets whether what is left of a candidate is of another size than its worker ran last.
func (d *decision) sized(c *candidate) {
	last := d.sizing(c).Size
	c.rest.Resize(&last)
}

// outgrown reports whether a larger size would have paid by now.
func (z *sizing) outgrown() bool { return z.Cost > 0 && z.Regret >= z.Cost }

// fill has a batch that is to be formed filled up to the size that its worker ran last,
// where that takes less than a change.
func (d *decision) fill(c *candidate) {
	z, full := d.sizing(c), c.rest
	if c.batch != nil || c.solo.Resizing == 0 {
		return
	}
	z.Cost = c.solo.Resizing
	full.Size, full.Resized = z.Size, false
	if z.Size > c.service.MaxBatch || !c.fits(z.Size, c.head.Size) {
		return
	}
	if e := d.ask.alone(full); e.Latency > 0 && e.Latency < c.solo.Latency {
		c.rest, c.solo, c.filled = full, e, true
	}
}

// fits reports whether queries of the size of the head fill up a batch from a size.
func (c *candidate) fits(full, size int) bool { return size < full && (full-size)%c.head.Size == 0 }

// grows reports whether a candidate is to be passed for younger queries of its service,
// since a larger size pays by now and there is no time to change to it before the
// candidate is late: it would be so in every decision, and the size stay for ever.
func (d *decision) grows(c *candidate) bool {
	z := d.sizing(c)
	if c.batch != nil || !z.outgrown() || c.head.Full == 0 {
		return false
	}
	by := d.at + z.Cost + c.head.Full
	return by > c.deadline && slices.ContainsFunc(c.service.queue.items, func(q *query) bool { return q.Deadline >= by && !q.suspect() })
}

// formed takes in what the size of a batch costs that was formed of a candidate.
func (c *candidate) formed(z *sizing) {
	if full := c.service.MaxBatch; c.head.Full > 0 && c.rest.Size < full && c.service.queue.len()*c.head.Size >= c.rest.Size {
		share := float64(c.rest.Size) / float64(full)
		z.Regret += max(c.solo.Latency-c.solo.Resizing-time.Duration(share*float64(c.head.Full)), 0)
	}
}

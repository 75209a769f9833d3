package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// candidate is the most urgent work of one service: a batch that has started,
// or one that is to be formed.
type candidate struct {
	service   *service
	batch     *batch // nil if it is to be formed
	head      *query // around which it is to be formed
	rank      rank
	rest      models.Span   // all operators that are left
	deadline  time.Duration // the latest of its members
	members   []*query      // in gather order; only the head until merge
	postponed bool          // it is to be formed around a query that a triage has postponed
	end       int           // where its span in the group ends, 0 if it is not in it

	// What settle finds out, and merge changes.
	settled bool
	dropped bool
	solo    models.Estimate // the estimate of rest, alone
	probes  bool            // it runs although it is predicted to be late: alone, or not at all
	due     time.Duration   // the earliest deadline of its members that the rest, alone, would meet
	next    *query          // the most urgent that merge has left out; the overlap policy looks further

	// What the overlap policy finds out.
	latest  time.Duration // when its batch, as it was before merging, must start to be in time
	behind  time.Duration // the same for what is next
	verdict verdict
}

// before orders candidates: by rank, but for those that are postponed, after
// which only best effort comes.
func (c *candidate) before(o *candidate) bool {
	if c.rank.Filler == o.rank.Filler && c.postponed != o.postponed {
		return o.postponed
	}
	return c.rank.before(&o.rank)
}

// candidate returns a waiting query as the head of a batch to be formed.
func (q *query) candidate(sv *service) candidate {
	return candidate{service: sv, head: q, rank: q.Rank, rest: q.span(sv.Operators), deadline: q.Deadline, postponed: sv.view.second}
}

// candidate returns a paused batch as it will go on.
func (b *batch) candidate() candidate {
	return candidate{service: b.service, batch: b, rank: b.Rank, rest: b.rest(), deadline: b.Deadline}
}

// upTo returns the span that ends before operator end.
func (c *candidate) upTo(end int) models.Span {
	s := c.rest
	s.End = end
	return s
}

// aim sets due for a rest that would end at a time.
func (c *candidate) aim(end time.Duration) {
	c.due = forever
	for _, q := range c.members {
		if !q.Cancelled && q.Deadline >= end {
			c.due = min(c.due, q.Deadline)
		}
	}
}

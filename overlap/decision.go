package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// candidate is the most urgent work of one service.
type candidate struct {
	service *service
	paused  *batch // nil if it is a batch to be formed from the queue
	rank    *rank
	formed  *batch
	gone    bool // dropped
	end     int  // of its span in the group, 0 if it is not in it
}

// decision is what a policy sees, and where it puts the group.
type decision struct {
	s          *Scheduler
	candidates []candidate // the most urgent first
	group      []int       // candidates, in the order they were added
	dropped    bool
}

// open collects the most urgent work of every service. It reports whether
// there is any.
func (d *decision) open() bool {
	d.candidates, d.group, d.dropped = d.candidates[:0], d.group[:0], false
	for _, sv := range d.s.services {
		if paused, r, ok := sv.head(); ok {
			d.insert(candidate{service: sv, paused: paused, rank: r})
		}
	}
	return len(d.candidates) > 0
}

func (d *decision) insert(c candidate) {
	d.candidates = append(d.candidates, c)
	for i := len(d.candidates) - 1; i > 0 && c.rank.before(d.candidates[i-1].rank); i-- {
		d.candidates[i], d.candidates[i-1] = d.candidates[i-1], c
	}
}

// len returns the number of services that have work.
func (d *decision) len() int { return len(d.candidates) }

// now returns the time of the decision.
func (d *decision) now() time.Duration { return d.s.now }

// form returns the batch of candidate i. It is false if that was dropped
// because it cannot finish; the order of the candidates may then be another.
func (d *decision) form(i int) (*batch, bool) {
	c := &d.candidates[i]
	if c.formed == nil && !c.gone {
		c.formed = d.s.form(c.service, c.paused)
		c.gone = c.formed == nil
		d.dropped = d.dropped || c.gone
	}
	return c.formed, c.formed != nil
}

// add puts the operators up to end of candidate i, which must have been
// formed, into the group.
func (d *decision) add(i, end int) {
	d.candidates[i].end = end
	d.group = append(d.group, i)
}

// close starts the group, if there is one, and takes apart what was formed
// without being added.
func (d *decision) close() bool {
	for i := range d.candidates {
		if c := &d.candidates[i]; c.formed != nil && c.end == 0 && c.paused == nil {
			d.s.unform(c.formed)
		}
	}
	if len(d.group) == 0 {
		return false
	}
	d.s.open()
	for _, i := range d.group {
		c := &d.candidates[i]
		d.s.start(c.formed, c.end)
	}
	d.s.round.Predicted = d.s.predict.group(d.s.round.Group)
	return true
}

// form returns the most urgent batch of a service, ready to run: the paused
// one, if given, else one from the queue. It is nil if that was dropped.
func (s *Scheduler) form(sv *service, paused *batch) *batch {
	if paused != nil {
		if _, hopeless := s.hopeless(paused.rest(), paused.deadline); hopeless {
			s.abandon(paused, Dropped, ReasonCannotFinish)
			return nil
		}
		return paused
	}
	q := sv.queue.top()
	predicted, hopeless := s.hopeless(q.span(sv.Operators), q.Deadline)
	if hopeless && !sv.probe(s.now, predicted) {
		s.dequeue(q)
		s.answer(q, Dropped, ReasonCannotFinish)
		return nil
	}
	return s.merge(sv)
}

// hopeless predicts the time of a span and reports whether it would end after
// the deadline if it ran now.
func (s *Scheduler) hopeless(span models.Span, deadline time.Duration) (time.Duration, bool) {
	predicted := s.predict.span(span)
	return predicted, predicted > deadline-s.now
}

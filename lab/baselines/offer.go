package baselines

import (
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// offer is the batch that a service would start next: those of its queries, from the
// most urgent on, that have one shape and end in time together.
type offer struct {
	service *service
	members []*query
	size    int

	// due is the earliest deadline of the members. The offer may start from opens on, and
	// must start by latest to be in time.
	due, opens, latest time.Duration

	// alarm is when the offer is to be looked at again, overlap.Never if only an event can
	// change it.
	alarm time.Duration

	// A stale offer is rebuilt before the next batch starts. An open one may start.
	stale, open bool
}

// before reports whether an offer that may start comes before another one under a policy.
func (o *offer) before(other *offer, p policy) bool {
	level, than := o.members[0].level, other.members[0].level
	switch {
	case o.service.BestEffort != other.service.BestEffort:
		return other.service.BestEffort
	case level != than:
		return level < than
	case p.before(o, other):
		return true
	}
	return !p.before(other, o) && o.service.ID < other.service.ID
}

// invalidate marks the offer of a service stale. A service without queries has none.
func (o *offer) invalidate() {
	if o.stale {
		return
	}
	o.members, o.open, o.alarm = o.members[:0], false, overlap.Never
	o.stale = len(o.service.queue) > 0
}

// add makes a query the last member of an offer, if it fits.
func (s *scheduler) add(o *offer, q *query) bool {
	size, due := o.size+q.Size, min(o.due, q.Deadline)
	if len(o.members) > 0 {
		if size > o.service.MaxBatch || !q.batchesWith(o.members[0]) {
			return false
		}
		if took := s.estimate(o, size).Bound; took == 0 || s.now+took > due && !o.service.BestEffort {
			return false
		}
	}
	o.members = append(o.members, q)
	o.size, o.due = size, due
	return true
}

// estimate returns how long a batch of queries like those of an offer takes, zero if that
// is unknown.
func (s *scheduler) estimate(o *offer, size int) models.Estimate {
	q := o.members[0]
	return o.service.on(s.devices).predict(models.Span{Service: q.Service, End: o.service.Operators, Size: size, SeqLen: q.SeqLen})
}

// rebuild forms an offer from its queue, and drops what can no longer be in time.
func (s *scheduler) rebuild(o *offer) {
	sv := o.service
	o.stale = true // while its queries are dropped
	o.open = false
	runs := sv.first() >= 0
	if runs {
		s.shed(o)
	}
	o.stale = false
	o.members, o.size, o.due, o.alarm = o.members[:0], 0, overlap.Never, overlap.Never
	if !runs {
		return
	}
	for _, q := range sv.queue {
		if !s.add(o, q) {
			break
		}
	}
	if len(o.members) > 0 {
		s.schedule(o)
	}
}

// shed drops the most urgent queries of a service that would be late even alone, or
// that keep its batch from the target of the policy.
func (s *scheduler) shed(o *offer) {
	sv := o.service
	for len(sv.queue) > 0 {
		q := sv.queue[0]
		o.members = append(o.members[:0], q)
		took := s.estimate(o, q.Size).Latency
		late := s.now+took > q.Deadline
		switch {
		case took == 0 || sv.BestEffort || late && sv.exploration.allows(s.now, took, q):
			return
		case !late && len(sv.queue) == 1:
			return
		case !late:
			size := min(s.policy.target(s, o), len(sv.queue)*q.Size)
			if size <= q.Size || s.now+s.estimate(o, size).Bound <= q.Deadline {
				return
			}
		}
		s.answer(s.dequeue(q), overlap.Dropped, overlap.ReasonCannotFinish)
	}
}

// schedule sets from when until when an offer may start.
func (s *scheduler) schedule(o *offer) {
	took := s.estimate(o, o.size).Bound
	o.opens, o.latest = s.now, o.due-took
	switch {
	case took == 0 || o.service.BestEffort || o.latest < s.now:
		o.latest = overlap.Never // it starts as soon as it can
	case o.size < o.service.MaxBatch && !o.members[0].alone:
		o.opens = min(s.policy.opens(s, o), o.latest)
	}
	if o.open = o.opens <= s.now; o.open {
		o.alarm = max(o.latest, o.latest+1)
	} else {
		o.alarm = o.opens
	}
}

// refresh rebuilds stale offers, opens those whose time has come, and rebuilds those whose
// time has passed.
func (s *scheduler) refresh() {
	for _, sv := range s.services {
		o := &sv.offer
		if o.stale {
			s.rebuild(o)
		}
		for o.alarm <= s.now {
			if o.alarm == o.opens && !o.open {
				o.open, o.alarm = true, max(o.latest, o.latest+1)
			} else {
				s.rebuild(o)
			}
		}
	}
}

// best returns the first open offer that a device can run, nil if there is none. With a
// negative device it is the first of all.
func (s *scheduler) best(device int) (first *offer) {
	for _, sv := range s.services {
		o := &sv.offer
		if o.open && (device < 0 || sv.up[device]) && (first == nil || o.before(first, s.policy)) {
			first = o
		}
	}
	return first
}

// preempt stops the smallest running batch for the first offer, if the offer is larger by
// the factor of the policy. A batch that has just started runs on, so that a stop costs
// time.
func (s *scheduler) preempt() {
	times, restarts := s.policy.preempts()
	if times == 0 {
		return
	}
	o := s.best(-1)
	if o == nil {
		return
	}
	var least *device
	for _, v := range s.devices {
		if !v.stopping && v.round.Start < s.now && o.service.up[v.index] && (least == nil || v.running.size < least.running.size) {
			least = v
		}
	}
	if least == nil {
		return
	}
	b, size := least.running, o.size
	if b.service == o.service {
		if !restarts {
			return
		}
		size = s.together(o, b)
	}
	if float64(size) >= times*float64(b.size) {
		least.stopping, least.restarts = true, restarts
		s.stops = append(s.stops, b.held())
	}
}

// together returns the size of an offer with the queries of a batch of its service, 0 if
// they cannot be in time together.
func (s *scheduler) together(o *offer, b *batch) int {
	size, due := o.size+b.size, o.due
	for _, q := range b.members {
		if !q.batchesWith(o.members[0]) {
			return 0
		}
		due = min(due, q.Deadline)
	}
	if size > o.service.MaxBatch || s.now+s.estimate(o, size).Bound > due {
		return 0
	}
	return size
}

// take returns how many members of an offer start, and their batch size: all, or as many
// as have a size on the ladder. The first may be of any size.
func (o *offer) take() (n, size int) {
	sum := 0
	for i, q := range o.members {
		if sum += q.Size; i == 0 || !o.service.Ladder || models.OnLadder(sum) {
			n, size = i+1, sum
		}
	}
	return n, size
}

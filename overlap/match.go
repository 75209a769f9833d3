package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// matcher is a policy for devices that run one batch at a time. It does not choose for
// one device among the most urgent work, but matches batches with devices, as Symphony
// does (section 3.2): each service has one offer, the batch that it would start next,
// which is kept up to date as queries come and may start within its window. What an
// event costs grows with the logarithm of the number of services and does not depend on
// the number of devices.
type matcher interface {
	policy

	// opens returns from when on an offer may start that can grow.
	opens(m *matching, o *offer) time.Duration

	// before orders offers that may start and are equal in best effort and priority.
	before(a, b *offer) bool

	// target returns the size of batch for the sake of which a service gives up its most
	// urgent queries, 0 to give up none that could be in time.
	target(m *matching, o *offer) int

	// resumes reports whether a batch that is paused goes on before an offer starts.
	resumes(b *batch, o *offer) bool

	// preempts returns how many times as large as a batch that runs an offer must be to
	// have that stopped, 0 to stop none, and whether what was stopped starts anew.
	preempts() (times float64, anew bool)
}

// offer is the batch that a service would start next: those of its queries, from the
// most urgent on, that have one shape and end in time together.
type offer struct {
	service *service
	members []*query
	size    int
	due     time.Duration // the earliest deadline
	opens   time.Duration // when it may start
	latest  time.Duration // when it must start to be in time
	stale   bool          // it is in matching.stale
	timerAt int           // in matching.timers, -1 outside
	openAt  int           // in matching.open, -1 unless it may start
}

// timer is when an offer is to be looked at again. The time is beside the offer, so that
// the order of many is kept without looking at each of them.
type timer struct {
	at    time.Duration
	offer *offer
}

// matching holds the offers of all services. One that is nil belongs to a policy that
// is no matcher.
type matching struct {
	matcher
	*backlog
	stale  heap[*offer] // to be made again before the next batch starts
	timers heap[timer]
	open   heap[*offer]
	aside  []*offer // scratch of best
}

func newMatching(l *backlog) *matching {
	rule, ok := l.policy.(matcher)
	if !ok {
		return nil
	}
	m := &matching{matcher: rule, backlog: l}
	m.stale.before = func(a, b *offer) bool { return a.service.ID < b.service.ID }
	m.timers.before = func(a, b timer) bool {
		return a.at < b.at || a.at == b.at && a.offer.service.ID < b.offer.service.ID
	}
	m.timers.moved = func(t timer, pos int) { t.offer.timerAt = pos }
	m.open.before = func(a, b *offer) bool {
		p, q := &a.members[0].Rank, &b.members[0].Rank
		switch {
		case p.Filler != q.Filler:
			return q.Filler
		case p.Level != q.Level:
			return p.Level < q.Level
		case rule.before(a, b):
			return true
		}
		return !rule.before(b, a) && a.service.ID < b.service.ID
	}
	m.open.moved = func(o *offer, pos int) { o.openAt = pos }
	return m
}

// renewal has the offer of a service made again before the next batch starts, or, if it has
// pipelines, a reservation thought about. A service without queries has none.
func (m *matching) renewal(sv *service) {
	sv.intent.stale = true
	if m == nil || sv.offer.stale {
		return
	}
	o := &sv.offer
	m.close(o)
	m.wake(o, forever)
	o.members = o.members[:0]
	if o.stale = sv.queue.len() > 0; o.stale {
		m.stale.push(o)
	}
}

// joined takes in that a query waits. Where all that wait are in the offer it is added
// or, if it comes last and does not fit, left.
func (m *matching) joined(sv *service, q *query) {
	sv.intent.stale = sv.intent.stale || sv.queue.top() == q
	if m == nil || sv.offer.stale {
		return
	}
	o := &sv.offer
	switch n := len(o.members); {
	case n == 0 || q.Rank.before(&o.members[n-1].Rank):
		m.renewal(sv)
	case n == sv.queue.len()-1 && m.add(o, q):
		m.schedule(o)
	}
}

// add makes a query the last member of an offer, if it fits.
func (m *matching) add(o *offer, q *query) bool {
	size, due := o.size+q.Size, min(o.due, q.Deadline)
	if len(o.members) > 0 {
		head := o.members[0]
		if size > o.service.MaxBatch || !q.mergesWith(head) {
			return false
		}
		if took := m.takes(o, size); took == 0 || m.now+took > due && !q.Rank.Filler {
			return false
		}
	}
	o.members = append(o.members, q)
	o.size, o.due = size, due
	return true
}

// estimate returns what a batch of a size takes that is of such queries as are in the
// offer, zero if that is unknown.
func (m *matching) estimate(o *offer, size int) models.Estimate {
	s := o.members[0].span(o.service.Operators)
	s.Size = size
	return m.predict(o.service).alone(s)
}

// takes returns within what time such a batch ends, by the bound of the estimate. A
// query that is alone is not dropped for the sake of it.
func (m *matching) takes(o *offer, size int) time.Duration { return m.estimate(o, size).Bound }

// renew makes the offer of a service again, and drops what can no longer be in time.
func (m *matching) renew(o *offer) {
	sv := o.service
	o.stale = true // while its queries are dropped
	m.close(o)
	runnable := sv.places() > 0
	if runnable {
		m.giveUp(o)
	}
	o.stale = false
	o.members, o.size, o.due = o.members[:0], 0, forever
	if runnable {
		queue, passed := &sv.view.queue, 0
		for queue.start(); ; queue.pass() {
			q, ok := queue.top()
			if ok && len(o.members) > 0 && q.Part != o.members[0].Part && passed < mergeScan {
				passed++ // suspects wait among others
				continue
			}
			if !ok || !m.add(o, q) {
				break
			}
		}
	}
	if len(o.members) > 0 {
		m.schedule(o)
	} else {
		m.wake(o, forever)
	}
}

// giveUp drops the most urgent queries of a service that would be late even alone, or
// that keep its batch from its target.
func (m *matching) giveUp(o *offer) {
	sv := o.service
	for sv.queue.len() > 0 {
		q := sv.queue.top()
		o.members = append(o.members[:0], q)
		took := m.estimate(o, q.Size).Latency
		late := m.now+took > q.Deadline
		switch {
		case took == 0 || q.Rank.Filler || late && sv.exploration(nil).allows(m.now, took, q):
			return
		case !late && sv.queue.len() == 1:
			return
		case !late:
			size := min(m.target(m, o), sv.queue.len()*q.Size)
			if size <= q.Size || m.now+m.takes(o, size) <= q.Deadline {
				return
			}
		}
		m.answer(m.dequeue(q), Dropped, ReasonCannotFinish)
	}
}

// schedule sets the window of an offer that has members.
func (m *matching) schedule(o *offer) {
	took := m.takes(o, o.size)
	o.opens, o.latest = m.now, o.due-took
	switch {
	case took == 0 || o.members[0].Rank.Filler || o.latest < m.now:
		o.latest = forever // it starts as soon as it can
	case o.size < o.service.MaxBatch && !o.members[0].suspect():
		o.opens = min(m.opens(m, o), o.latest)
	}
	if o.opens > m.now {
		m.close(o)
		m.wake(o, o.opens)
		return
	}
	m.allow(o)
}

// allow lets an offer start from now on.
func (m *matching) allow(o *offer) {
	if o.openAt < 0 {
		m.open.push(o)
	} else {
		m.open.fix(o.openAt)
	}
	m.wake(o, max(o.latest, o.latest+1))
}

// close lets an offer start no more.
func (m *matching) close(o *offer) {
	if o.openAt >= 0 {
		m.open.remove(o.openAt)
	}
}

// wake sets when an offer is to be looked at again.
func (m *matching) wake(o *offer, at time.Duration) {
	switch {
	case o.timerAt >= 0 && at == forever:
		m.timers.remove(o.timerAt)
	case o.timerAt >= 0:
		m.timers.items[o.timerAt].at = at
		m.timers.fix(o.timerAt)
	case at < forever:
		m.timers.push(timer{at, o})
	}
}

// alarm returns when an offer is to be looked at next. It is false if none is.
func (m *matching) alarm() (at time.Duration, ok bool) {
	switch {
	case m == nil:
		return 0, false
	case m.stale.len() > 0:
		return m.now, true
	case m.timers.len() > 0:
		return m.timers.top().at, true
	}
	return 0, false
}

// next returns the next batch to run, and its device. It is false if no device is free
// that could run any.
func (m *matching) next() (v *device, c candidate, ok bool) {
	for m.stale.len() > 0 {
		m.renew(m.stale.pop())
	}
	for m.timers.len() > 0 && m.timers.top().at <= m.now {
		if t := m.timers.top(); t.at == t.offer.opens && t.offer.openAt < 0 {
			m.allow(t.offer)
		} else {
			m.renew(t.offer)
		}
	}
	if m.idle.next(0) < 0 {
		m.preempt()
	}
	for i := m.idle.next(0); i >= 0 && (m.open.len() > 0 || m.paused.len() > 0); i = m.idle.next(i + 1) {
		v = m.devices[i]
		o, b := m.best(v), m.pausedAt(v)
		switch {
		case b != nil && (o == nil || m.resumes(b, o)):
			return v, b.candidate(), true
		case o != nil:
			n, size := o.service.together(o.members)
			head := o.members[0]
			c := candidate{service: o.service, head: head, rank: head.Rank, rest: head.span(o.service.Operators), members: o.members[:n]}
			c.rest.Size = size
			for _, q := range c.members {
				c.deadline = max(c.deadline, q.Deadline)
			}
			c.explores = n == 1 && m.now+m.estimate(o, size).Latency > head.Deadline
			return v, c, true
		}
	}
	return nil, candidate{}, false
}

// best returns the first offer that a device can run, nil if there is none.
func (m *matching) best(v *device) (found *offer) {
	for m.open.len() > 0 {
		o := m.open.top()
		if o.service.runnable(v.index) {
			found = o
			break
		}
		m.aside = append(m.aside, m.open.pop())
	}
	for _, o := range m.aside {
		m.open.push(o)
	}
	m.aside = m.aside[:0]
	return found
}

// pausedAt returns the most urgent batch that is paused on a device and can be in time,
// nil if there is none. Those that cannot are dropped.
func (m *matching) pausedAt(v *device) (first *batch) {
	if v.paused == 0 {
		return nil
	}
	for _, sv := range m.services {
		r := &sv.replicas[v.index]
		for sv.runnable(v.index) && r.paused.len() > 0 {
			b := r.paused.top()
			if !b.Rank.Filler && m.now+v.predict.alone(b.rest()).Latency > b.Deadline {
				m.abandon(b, Dropped, ReasonCannotFinish)
				continue
			}
			if first == nil || b.Rank.before(&first.Rank) {
				first = b
			}
			break
		}
	}
	return first
}

// preempt stops the smallest batch that runs for the first offer, if that is larger by
// so much. One that has just started runs on, so that a stop costs no more than time.
func (m *matching) preempt() {
	times, anew := m.preempts()
	if times == 0 || m.open.len() == 0 {
		return
	}
	o := m.open.top()
	var least *batch
	for _, v := range m.devices {
		if !v.stopping && v.round.Start < m.now && o.service.runnable(v.index) && (least == nil || v.running[0].Size < least.Size) {
			least = v.running[0]
		}
	}
	if least == nil {
		return
	}
	size := o.size
	switch {
	case least.service == o.service && !anew:
		return
	case least.service == o.service:
		size = m.together(o, least)
	}
	if float64(size) >= times*float64(least.Size) {
		least.device.stopping, least.device.anew = true, anew
		m.stops.add(least.held())
	}
}

// together returns the size that an offer has if a batch of its service joins it that
// starts anew, 0 if it cannot.
func (m *matching) together(o *offer, b *batch) int {
	size, due, head := o.size+b.Size, o.due, o.members[0]
	for _, q := range b.members {
		if !q.mergesWith(head) {
			return 0
		}
		due = min(due, q.Deadline)
	}
	if size > o.service.MaxBatch || m.now+m.takes(o, size) > due {
		return 0
	}
	return size
}

package overlap

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/reserve"
)

// routes forms the batches of services that have pipelines, as package reserve decides, and moves
// them from device to device. A batch that is formed is like one that is paused before its first
// operator.
type routes struct {
	s      *Scheduler
	tables *reserve.Tables

	// members are the queries that may be in the next batch of a service, the most urgent first.
	members []*query
}

// workers are the devices of a scheduler, and its workers on them, as package reserve sees them.
type workers struct{ s *Scheduler }

func (w workers) Ends(device int) (at time.Duration, runs bool) {
	v := w.s.backlog.host.devices[device]
	return v.ends(), v.busy()
}

func (w workers) Runs(id models.ServiceID, device int) bool {
	return w.s.backlog.services[id].runnable(device)
}

func (w workers) Alone(device int, span models.Span) models.Estimate {
	return w.s.backlog.host.devices[device].predict.alone(span)
}

// open makes the tables of a pool.
func (r *routes) open(s *Scheduler, links []int) {
	kinds := make([]int, len(s.backlog.host.devices))
	for i, v := range s.backlog.host.devices {
		kinds[i] = v.kind
	}
	_, isReactive := s.backlog.policy.(reactive)
	r.s, r.tables = s, reserve.New(workers{s}, kinds, links, isReactive)
	r.regard()
}

// regard finds out which services have pipelines, after one has changed.
func (r *routes) regard() {
	s := r.s
	s.backlog.piped = s.backlog.piped[:0]
	var lines []*reserve.Queue
	for _, sv := range s.backlog.services {
		if sv.line.Service = &sv.Service; len(sv.Pipelines) > 0 && !sv.removed {
			s.backlog.piped, lines = append(s.backlog.piped, sv), append(lines, &sv.line)
		}
	}
	r.tables.Share(lines)
}

// freed marks the queues of services whose batches start on a device that has become free.
func (r *routes) freed(device int) {
	for _, sv := range r.s.backlog.piped {
		if sv.queue.len() > 0 {
			r.tables.Freed(&sv.line, device)
		}
	}
}

// serve makes the reservations whose time has come, and begins moves.
func (r *routes) serve() {
	if r.s.backlog.blocked > 0 {
		r.depart()
	}
	for more := true; more; {
		more = false
		for _, sv := range r.s.backlog.piped {
			for r.turn(sv) {
				more = true
			}
		}
	}
}

// alarm returns when serve is to be called again. It is false if there is nothing to wait for.
func (r *routes) alarm() (at time.Duration, ok bool) {
	s := r.s
	at = forever
	for _, sv := range s.backlog.piped {
		at = min(at, sv.line.Wake(s.backlog.now, sv.queue.len()))
	}
	if s.backlog.blocked > 0 {
		for _, b := range s.backlog.onWay {
			if depart := b.At().Depart; b.Transit == awaiting && depart > s.backlog.now {
				at = min(at, depart)
			}
		}
	}
	return at, at < forever
}

// turn forms the next batch of a service, drops its most urgent query, or makes it wait for more
// queries. It returns whether there may be more to do.
func (r *routes) turn(sv *service) bool {
	s := r.s
	if sv.queue.len() == 0 || sv.line.Wake(s.backlog.now, sv.queue.len()) > s.backlog.now {
		return false
	}
	r.gather(sv)
	head := r.members[0]
	what, size := r.tables.Next(s.backlog.now, &sv.line)
	switch doubted := what == reserve.Doubt; {
	case what == reserve.Wait:
		return false
	case what == reserve.Drop, doubted && !sv.exploration(nil).allows(s.backlog.now, r.tables.Took(s.backlog.now), head):
		s.backlog.answer(s.backlog.dequeue(head), Dropped, ReasonCannotFinish)
	default:
		r.book(sv, size, doubted)
	}
	return true
}

// gather lists the queries that may be in the next batch of a service.
func (r *routes) gather(sv *service) {
	q, queue, most := &sv.line, &sv.view.queue, sv.line.Largest()
	r.members, q.Size, q.Due = r.members[:0], 0, forever
	queue.start()
	for scanned := 0; scanned < max(mergeScan, most) && q.Size < most; scanned++ {
		next, ok := queue.top()
		if !ok {
			break
		}
		queue.pass()
		if len(r.members) > 0 && (!next.mergesWith(r.members[0]) || q.Size+next.Size > most) {
			continue
		}
		r.members = append(r.members, next)
		q.Size += next.Size
		if !next.Rank.Filler {
			q.Due = min(q.Due, next.Deadline)
		}
	}
	head := r.members[0]
	q.Head, q.Alone, q.Suspect = &head.Query, head.Apart, head.suspect()
	q.Waiting, q.Draining = sv.queue.len(), r.s.backlog.draining
}

// book forms the batch of a service: of those that were gathered as many as are of a size together.
func (r *routes) book(sv *service, size int, explores bool) {
	s, n, reach := r.s, 0, 0
	for n < len(r.members) && reach+r.members[n].Size <= size {
		reach += r.members[n].Size
		n++
	}
	n, reach = sv.together(r.members[:n])
	c := candidate{service: sv, head: r.members[0], members: r.members[:n]}
	b := s.backlog.form(&c, nil)
	b.Batch, b.Reserved, b.Explores, b.Late = b.id, true, explores, explores || c.head.Rank.Filler
	r.tables.Book(s.backlog.now, &sv.line, reach, &b.Way)
	b.device, b.Due = s.backlog.host.devices[b.At().Device], forever
	for _, q := range b.members {
		b.Due = min(b.Due, q.Deadline)
	}
	r.tables.Reserve(&b.Way, b.device.index)
	s.backlog.pause(b)
	s.overturn()
}

// begin records that a span of a batch starts now, of which so much is left in the stage.
func (r *routes) begin(b *batch, left time.Duration) {
	if b.Reserved {
		b.Reserved, b.Started = false, r.s.backlog.now
	}
	r.tables.Correct(&b.Way, r.s.backlog.now, left)
}

// forget asks again for the estimate of the stage that has just run on the device of a batch.
func (r *routes) forget(b *batch) {
	r.tables.Forget(&b.Way, b.service.ID, b.device.index, b.Size, b.SeqLen)
}

// vacate removes what is reserved for a batch.
func (r *routes) vacate(b *batch) {
	if len(b.Legs) > 0 {
		r.tables.Vacate(&b.Way, b.from())
	}
}

// reserve reserves the rest of the way of a batch.
func (r *routes) reserve(b *batch) {
	if len(b.Legs) > 0 {
		r.tables.Reserve(&b.Way, b.from())
	}
}

// spared returns when the group of a decision must have ended, for the sake of the batches that
// have reserved the device, if a batch joins it, or other work if the batch is nil. A batch alone
// regards the reservations before its own, and a group those of all batches outside it. Batches
// that would be late even if they started at soon impose nothing.
func (r *routes) spared(d *decision, of *batch, soon time.Duration) time.Duration {
	var before *reserve.Way
	if of != nil && len(d.group) == 0 {
		before = &of.Way
	}
	return r.tables.Limit(d.device.index, before, soon, func(w *reserve.Way) bool {
		its := func(b *batch) bool { return b != nil && &b.Way == w }
		return its(of) || slices.ContainsFunc(d.device.slots[0].running, its) ||
			slices.ContainsFunc(r.s.backlog.host.overruns, func(b *batch) bool { return its(b) && b.device == d.device }) ||
			slices.ContainsFunc(d.group, func(i int) bool { return its(d.candidates[i].batch) })
	})
}

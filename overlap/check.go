package overlap

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/reserve"
)

// Check reports the first invariant that does not hold. It looks at everything
// that waits, so it is for tests and simulators, which call it after events.
func (s *Scheduler) Check() error {
	if err := s.backlog.check(); err != nil {
		return err
	}
	for _, v := range s.backlog.host.devices {
		if err := v.check(); err != nil {
			return fmt.Errorf("device %d: %w", v.index, err)
		}
	}
	batched := 0
	count := func(b *batch) {
		for _, q := range b.members {
			if !q.Answered { // others were answered while their batch was an overrun
				batched++
			}
		}
	}
	var accepted, answered uint64
	busy := 0
	for _, sv := range s.backlog.services {
		_, overruns := sv.started()
		busy += overruns
		accepted += sv.metrics.Arrived + uint64(sv.metrics.Moved)
		answered += sv.metrics.answered()
		for i := range sv.replicas {
			for _, b := range sv.replicas[i].paused.items {
				count(b)
			}
		}
	}
	type worker struct {
		of *service
		on *device
	}
	workers := map[worker]bool{}
	for _, b := range s.backlog.host.overruns {
		count(b)
		if at := (worker{b.service, b.device}); !workers[at] {
			workers[at] = true
			busy--
		}
		if sv := b.service; !b.running || b.pausedPos >= 0 || b.Overrun.End <= b.Next || b.Overrun.End > sv.Operators || !sv.busy.has(b.device.index) {
			return fmt.Errorf("batch %d at operator %d is an overrun until %d, running is %v", b.id, b.Next, b.Overrun.End, b.running)
		}
		if err := b.check(); err != nil {
			return err
		}
	}
	if busy != 0 {
		return fmt.Errorf("%d workers are busy without an overrun", busy)
	}
	for _, v := range s.backlog.host.devices {
		for i := range v.slots {
			for _, b := range v.slots[i].running {
				count(b)
			}
		}
	}
	for _, b := range s.backlog.onWay {
		count(b)
	}
	if err := s.backlog.routes.check(); err != nil {
		return err
	}
	if queued := s.backlog.waiting.len(); len(s.backlog.queries) != queued+batched {
		return fmt.Errorf("%d queries are known, %d queued and %d in batches", len(s.backlog.queries), queued, batched)
	}
	if accepted != answered+uint64(len(s.backlog.queries)) {
		return fmt.Errorf("%d queries accepted, %d answered, %d known", accepted, answered, len(s.backlog.queries))
	}
	return nil
}

func (l *backlog) check() error {
	queued, paused, ranked := 0, 0, 0
	for _, q := range l.waiting.items {
		if q.Priority > 0 {
			ranked++
		}
	}
	if ranked != l.ranked {
		return fmt.Errorf("%d queries in queues have a priority, %d are counted", ranked, l.ranked)
	}
	for _, sv := range l.services {
		if err := sv.check(); err != nil {
			return fmt.Errorf("service %s: %w", sv.Name, err)
		}
		queued += sv.queue.len()
		n, _ := sv.started()
		paused += n
	}
	if l.waiting.len() != queued {
		return fmt.Errorf("%d queries are queued, %d wait for their deadline", queued, l.waiting.len())
	}
	if l.paused.len() != paused {
		return fmt.Errorf("%d batches are paused, %d wait for their deadline", paused, l.paused.len())
	}
	if err := l.waiting.check(func(q *query) int { return q.expiryPos }); err != nil {
		return fmt.Errorf("waiting queries: %w", err)
	}
	if err := l.paused.check(func(b *batch) int { return b.expiryPos }); err != nil {
		return fmt.Errorf("paused batches: %w", err)
	}
	return nil
}

func (sv *service) check() error {
	if err := sv.queue.check(func(q *query) int { return q.queuePos }); err != nil {
		return fmt.Errorf("queue: %w", err)
	}
	if sv.removed && (!sv.down() || sv.queue.len() > 0 || sv.metrics != ServiceMetrics{}) {
		return fmt.Errorf("it was removed and is not empty: %+v", sv.metrics)
	}
	for _, q := range sv.queue.items {
		if q.batch != nil || q.Cancelled {
			return fmt.Errorf("query %d is queued and in batch %v, cancelled is %v", q.ID, q.batch, q.Cancelled)
		}
	}
	for i := range sv.replicas {
		if err := sv.replicas[i].check(sv, i); err != nil {
			return fmt.Errorf("device %d: %w", i, err)
		}
	}
	return nil
}

func (r *replica) check(sv *service, device int) error {
	if err := r.paused.check(func(b *batch) int { return b.pausedPos }); err != nil {
		return fmt.Errorf("paused batches: %w", err)
	}
	if err := r.exploration.check(); err != nil {
		return err
	}
	if up := sv.up.has(device); !up && r.paused.len() > 0 || r.paused.len() > MaxPaused+reserve.MaxSlots {
		return fmt.Errorf("%d batches are paused, up is %v", r.paused.len(), up)
	}
	for _, b := range r.paused.items {
		starts := b.Next == 0 && b.Reserved
		if b.running || b.service != sv || b.device.index != device || b.Next < 1 && !starts || b.Next >= b.end() || !b.wanted() {
			return fmt.Errorf("batch %d is paused at operator %d, running is %v", b.id, b.Next, b.running)
		}
		if err := b.check(); err != nil {
			return err
		}
	}
	return nil
}

func (b *batch) check() error {
	size := 0
	for _, q := range b.members {
		if q.batch != b || q.Service != b.service.ID || q.queuePos >= 0 || q.expiryPos >= 0 || q.SeqLen != b.SeqLen || q.Part != b.members[0].Part {
			return fmt.Errorf("query %d does not belong in batch %d", q.ID, b.id)
		}
		if !q.Cancelled && b.Transit == settled && q.Deadline-b.Later() > b.Deadline {
			return fmt.Errorf("query %d ends after its batch %d", q.ID, b.id)
		}
		size += q.Size
	}
	if b.id == 0 || size != b.Size*b.span(b.end()).Times(len(b.members)) {
		return fmt.Errorf("batch %d has size %d, its members %d", b.id, b.Size, size)
	}
	return nil
}

// check finds what is reserved for nobody, twice, or not at all, and batches that are not on their
// way.
func (r *routes) check() error {
	s := r.s
	var ways []*reserve.Way
	for _, b := range slices.Concat(s.backlog.paused.items, s.backlog.host.overruns, s.backlog.onWay) {
		ways = append(ways, &b.Way)
	}
	for _, v := range s.backlog.host.devices {
		for _, b := range v.slots[0].running {
			ways = append(ways, &b.Way)
		}
	}
	if err := r.tables.Check(ways); err != nil {
		return err
	}
	blocked := 0
	for _, b := range s.backlog.onWay {
		if b.running || b.pausedPos >= 0 || b.expiryPos >= 0 || b.Transit == settled || b.Leg < 1 || b.Next != b.Legs[b.Leg-1].End {
			return fmt.Errorf("batch %d is on its way from operator %d, and is at %d", b.id, b.Next, b.Leg)
		}
		if b.Transit == awaiting {
			blocked++
		}
		if err := b.check(); err != nil {
			return err
		}
	}
	if blocked != s.backlog.blocked {
		return fmt.Errorf("%d batches wait for links, %d are counted", blocked, s.backlog.blocked)
	}
	return nil
}

func (v *device) check() error {
	taken := 0
	for i := range v.slots {
		o := &v.slots[i]
		if err := v.checkSlot(o); err != nil {
			return fmt.Errorf("slot %d: %w", i, err)
		}
		if o.busy {
			taken += v.width(o.round.Spans[0].Share)
		}
	}
	if v.units == 1 && v.free != v.units-taken || v.free > v.units-taken {
		return fmt.Errorf("%d of %d units are free while rounds have %d", v.free, v.units, taken)
	}
	return nil
}

func (v *device) checkSlot(o *slot) error {
	n := len(o.running)
	if v.alone && n > 1 || n > 1 && o.round.Spans[0].Share > 0 {
		return fmt.Errorf("%d spans run together where each is alone", n)
	}
	if o.busy != (n > 0) || o.busy && (n != len(o.round.Spans) || n != len(o.round.Queries)) {
		return fmt.Errorf("%d batches run %d spans, busy is %v", n, len(o.round.Spans), o.busy)
	}
	seen := map[models.ServiceID]bool{}
	for i, b := range o.running {
		span := o.round.Group.Spans[i]
		asked := span
		asked.Share = 0
		switch {
		case !b.running || b.device != v || b.Overrun.End > 0 || b.pausedPos >= 0 || b.expiryPos >= 0:
			return fmt.Errorf("batch %d runs and waits", b.id)
		case b.Next < 0 || asked != b.span(span.End) || span.Len() < 1 || span.End > b.service.Operators:
			return fmt.Errorf("batch %d at operator %d runs %+v", b.id, b.Next, span)
		case seen[span.Service]:
			return fmt.Errorf("two spans of service %s", b.service.Name)
		}
		if err := b.check(); err != nil {
			return err
		}
		seen[span.Service] = true
	}
	return nil
}

func (h *heap[T]) check(pos func(T) int) error {
	for i, item := range h.items {
		if pos(item) != i {
			return fmt.Errorf("item %d believes to be at %d", i, pos(item))
		}
		if i > 0 && h.before(item, h.items[(i-1)/2]) {
			return fmt.Errorf("item %d belongs before its parent", i)
		}
	}
	return nil
}

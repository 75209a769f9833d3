package overlap

import "fmt"

// Check reports the first invariant that does not hold. It looks at everything
// that waits, so it is for tests and simulators, which call it after events.
func (s *Scheduler) Check() error {
	if err := s.backlog.check(); err != nil {
		return err
	}
	if err := s.flight.check(); err != nil {
		return err
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
	for _, sv := range s.services {
		accepted += sv.metrics.Arrived
		answered += sv.metrics.answered()
		for _, b := range sv.paused.items {
			count(b)
		}
		if sv.overrun != nil {
			count(sv.overrun)
		}
	}
	for _, b := range s.running {
		count(b)
	}
	if queued := s.waiting.len(); s.queries.count != queued+batched {
		return fmt.Errorf("%d queries are known, %d queued and %d in batches", s.queries.count, queued, batched)
	}
	if accepted != answered+uint64(s.queries.count) {
		return fmt.Errorf("%d queries accepted, %d answered, %d known", accepted, answered, s.queries.count)
	}
	return nil
}

func (l *backlog) check() error {
	queued, paused := 0, 0
	for _, sv := range l.services {
		if err := sv.check(); err != nil {
			return fmt.Errorf("service %s: %w", sv.Name, err)
		}
		queued += sv.queue.len()
		paused += sv.paused.len()
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
	if err := sv.paused.check(func(b *batch) int { return b.pausedPos }); err != nil {
		return fmt.Errorf("paused batches: %w", err)
	}
	if sv.Caution < 0 || sv.Caution > maxCaution {
		return fmt.Errorf("caution %d", sv.Caution)
	}
	if sv.removed && (!sv.Down || sv.queue.len() > 0 || sv.metrics != ServiceMetrics{}) {
		return fmt.Errorf("it was removed and is not empty: %+v", sv.metrics)
	}
	if sv.Down && sv.paused.len() > 0 || sv.paused.len() > MaxPaused {
		return fmt.Errorf("%d batches are paused, down is %v", sv.paused.len(), sv.Down)
	}
	for _, q := range sv.queue.items {
		if q.batch != nil || q.Cancelled {
			return fmt.Errorf("query %d is queued and in batch %v, cancelled is %v", q.ID, q.batch, q.Cancelled)
		}
	}
	if b := sv.overrun; b != nil {
		if !b.running || b.pausedPos >= 0 || b.Overrun <= b.Next || b.Overrun > sv.Operators || b.service != sv {
			return fmt.Errorf("batch %d at operator %d is an overrun until %d, running is %v", b.id, b.Next, b.Overrun, b.running)
		}
		if err := b.check(); err != nil {
			return err
		}
	}
	for _, b := range sv.paused.items {
		if b.running || b.Next < 1 || b.Next >= sv.Operators || !b.wanted() {
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
		if q.batch != b || q.Service != b.service.ID || q.queuePos >= 0 || q.expiryPos >= 0 || q.SeqLen != b.SeqLen {
			return fmt.Errorf("query %d does not belong in batch %d", q.ID, b.id)
		}
		if !q.Cancelled && q.Deadline > b.Deadline {
			return fmt.Errorf("query %d ends after its batch %d", q.ID, b.id)
		}
		size += q.Size
	}
	if b.id == 0 || size != b.Size {
		return fmt.Errorf("batch %d has size %d, its members %d", b.id, b.Size, size)
	}
	return nil
}

func (f *flight) check() error {
	if n := len(f.running); f.busy != (n > 0) || f.busy && (n != len(f.round.Spans) || n != len(f.round.Queries)) {
		return fmt.Errorf("%d batches run %d spans, busy is %v", n, len(f.round.Spans), f.busy)
	}
	var seen [MaxServices]bool
	for i, b := range f.running {
		span := f.round.Group.Spans[i]
		switch {
		case !b.running || b.Overrun > 0 || b.pausedPos >= 0 || b.expiryPos >= 0:
			return fmt.Errorf("batch %d runs and waits", b.id)
		case b.Next < 0 || span != b.span(span.End) || span.Len() < 1 || span.End > b.service.Operators:
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

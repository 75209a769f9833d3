package overlap

import "time"

// mergeScan is how many waiting queries are looked at to fill one batch.
const mergeScan = 64

// merge forms a batch from the queue of a service: its most urgent query, and
// those behind it that have the same shape and fit under MaxBatch, as long as
// the merged batch is predicted to make every member's deadline. A query that
// has lost a worker runs alone, so that if it was the cause, it takes no
// others with it.
func (s *Scheduler) merge(sv *service) *batch {
	head := s.dequeue(sv.queue.top())
	b := s.pool.batch(sv)
	b.seqLen = head.SeqLen
	b.rank = head.rank
	b.add(head)
	if head.retries > 0 {
		return b
	}
	earliest := head.Deadline
	for range mergeScan {
		if sv.queue.len() == 0 || b.size >= sv.MaxBatch {
			break
		}
		q := s.dequeue(sv.queue.top())
		if s.mergeable(b, head, q) && s.inTime(b, q, min(earliest, q.Deadline)) {
			earliest = min(earliest, q.Deadline)
			b.add(q)
			continue
		}
		s.passed = append(s.passed, q)
	}
	for i, q := range s.passed {
		s.enqueue(q)
		s.passed[i] = nil
	}
	s.passed = s.passed[:0]
	return b
}

func (s *Scheduler) mergeable(b *batch, head, q *query) bool {
	return q.Shape == head.Shape && q.SeqLen == head.SeqLen && q.retries == 0 &&
		b.size+q.Size <= b.service.MaxBatch
}

// inTime reports whether b with q would end before the earliest deadline of
// its members. What is unknown is not in time.
func (s *Scheduler) inTime(b *batch, q *query, earliest time.Duration) bool {
	merged := b.rest()
	merged.Size += q.Size
	predicted, hopeless := s.hopeless(merged, earliest)
	return predicted > 0 && !hopeless
}

// unform returns the members of a batch that did not start to their queue.
func (s *Scheduler) unform(b *batch) {
	for _, q := range b.members {
		q.batch = nil
		s.enqueue(q)
	}
	s.pool.putBatch(b)
}

package baselines

import (
	"fmt"
	"slices"
)

// Check reports the first invariant that does not hold. It looks at everything that
// waits, so it is for tests.
func (s *scheduler) Check() error {
	known := 0
	for _, sv := range s.services {
		known += len(sv.queue)
		if !slices.IsSortedFunc(sv.queue, func(a, b *query) int {
			if b.before(a) {
				return 1
			}
			return -1
		}) {
			return fmt.Errorf("service %s: its queue is not in order", sv.Name)
		}
		for i, q := range sv.queue {
			if q.batch != nil || q.cancelled || s.queries[q.ID] != q {
				return fmt.Errorf("query %d is queued and in batch %v, cancelled is %v", q.ID, q.batch, q.cancelled)
			}
			if o := &sv.offer; i < len(o.members) && o.members[i] != q {
				return fmt.Errorf("service %s: its offer has query %d at position %d instead of %d", sv.Name, o.members[i].ID, i, q.ID)
			}
		}
		if o := &sv.offer; len(o.members) > len(sv.queue) || o.open && (o.stale || len(o.members) == 0) {
			return fmt.Errorf("service %s: an offer of %d of %d queries, open is %v, stale is %v", sv.Name, len(o.members), len(sv.queue), o.open, o.stale)
		}
	}
	for _, v := range s.devices {
		for _, b := range v.paused {
			if b.next < 1 || b.next >= b.service.Operators || !b.wanted() || !b.service.up[v.index] {
				return fmt.Errorf("batch %d is paused at operator %d", b.id, b.next)
			}
		}
		batches := v.paused
		if v.running != nil {
			batches = append(slices.Clone(batches), v.running)
		}
		for _, b := range batches {
			if err := b.check(v); err != nil {
				return err
			}
			known += len(b.members)
		}
	}
	if known != len(s.queries) {
		return fmt.Errorf("%d queries are known, %d are queued or in batches", len(s.queries), known)
	}
	return nil
}

func (b *batch) check(v *device) error {
	size := 0
	for _, q := range b.members {
		if q.batch != b || q.Service != b.service.ID || q.SeqLen != b.members[0].SeqLen {
			return fmt.Errorf("query %d does not belong in batch %d", q.ID, b.id)
		}
		size += q.Size
	}
	if b.device != v || size != b.size || len(b.members) > 1 && size > b.service.MaxBatch {
		return fmt.Errorf("batch %d has size %d, its members %d", b.id, b.size, size)
	}
	return nil
}

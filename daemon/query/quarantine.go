package query

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Limits of what a service remembers of the queries that its workers died of.
const (
	quarantineSize = 64               // another one takes the place of the oldest
	quarantineTime = 10 * time.Minute // for how long their inputs are refused
)

// quarantine holds hashes of the inputs that ended a worker of a service, so that
// the same inputs do not end the next one. While it is empty, which is nearly
// always, it costs a query one atomic load.
type quarantine struct {
	used atomic.Bool
	mu   struct {
		sync.Mutex
		culprits []culprit // the oldest first
	}
}

type culprit struct {
	inputs uint64
	until  time.Time
}

// add remembers inputs that a worker has died of.
func (q *quarantine) add(inputs uint64, now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.culprits = slices.DeleteFunc(q.mu.culprits, func(c culprit) bool { return c.inputs == inputs })
	if excess := len(q.mu.culprits) + 1 - quarantineSize; excess > 0 {
		q.mu.culprits = slices.Delete(q.mu.culprits, 0, excess)
	}
	q.mu.culprits = append(q.mu.culprits, culprit{inputs, now.Add(quarantineTime)})
	q.used.Store(true)
}

// until returns when inputs are taken again, or the zero time if they are taken.
func (q *quarantine) until(inputs uint64, now time.Time) time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.culprits = slices.DeleteFunc(q.mu.culprits, func(c culprit) bool { return !now.Before(c.until) })
	q.used.Store(len(q.mu.culprits) > 0)
	for _, c := range q.mu.culprits {
		if c.inputs == inputs {
			return c.until
		}
	}
	return time.Time{}
}

// clear forgets all inputs.
func (q *quarantine) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.culprits = nil
	q.used.Store(false)
}

// submit hands a call to the backend, unless a worker has died of the same inputs.
func (s *Service) submit(c *Call) error {
	if s.quarantine.used.Load() {
		now := time.Now()
		if until := s.quarantine.until(c.inputsHash(), now); !until.IsZero() {
			return &Error{Status: http.StatusInternalServerError, Reason: ReasonQuarantined, Message: fmt.Sprintf(
				"service %s: a worker has died of these very inputs; they are not run again for %v: mend them, or the model",
				s.Name, until.Sub(now).Round(time.Second))}
		}
	}
	return s.Backend.Submit(c)
}

// inputsHash returns a hash of all inputs of an admitted call: their shapes and
// their data. It holds for this process only.
func (c *Call) inputsHash() uint64 {
	var h maphash.Hash
	h.SetSeed(shapeSeed)
	maphash.WriteComparable(&h, [2]uint64{c.Shape, uint64(c.Size)})
	for i := range c.Inputs {
		maphash.WriteComparable(&h, len(c.Inputs[i].Data))
		h.Write(c.Inputs[i].Data)
	}
	return h.Sum64()
}

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

// Limits of the quarantine of a service.
const (
	quarantineSize = 64               // entries; another one replaces the oldest
	quarantineTime = 10 * time.Minute // how long the same inputs are rejected
)

// quarantine holds hashes of inputs that killed a worker of a service, so that a client
// which retries does not kill the next one. While it is empty, the normal case, it costs a
// query one atomic load.
// used is set while there are entries.
type quarantine struct {
	used atomic.Bool
	mu   struct {
		sync.Mutex
		// culprits are in order of time, oldest first.
		culprits []culprit
	}
}

// culprit is a hash of inputs and when they are allowed again.
type culprit struct {
	inputs uint64
	until  time.Time
}

// add records inputs that killed a worker, or extends their time if they are known.
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

// until returns when inputs are allowed again, or the zero time if they are allowed now. It
// also removes expired entries.
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

// clear removes all entries.
func (q *quarantine) clear() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.culprits = nil
	q.used.Store(false)
}

// submit passes a call to the backend, or returns an error if its inputs are quarantined.
func (s *Service) submit(c *Call) error {
	if s.quarantine.used.Load() {
		now := time.Now()
		if until := s.quarantine.until(c.inputsHash(), now); !until.IsZero() {
			return &Error{Status: http.StatusInternalServerError, Reason: ReasonQuarantined, Message: fmt.Sprintf(
				"service %s: these inputs crashed a worker; they are not run again for %v: fix them, or the model",
				s.Name, until.Sub(now).Round(time.Second))}
		}
	}
	return s.Backend.Submit(c)
}

// inputsHash returns a hash of the shapes and data of all inputs of an admitted call. It is
// only comparable within this process.
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

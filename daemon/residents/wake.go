package residents

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap/residency"
)

// OnDemand implements [query.Sleeper].
func (r *Set) OnDemand() bool { return r.onDemand }

// Known implements [query.Sleeper].
func (r *Set) Known(s *query.Service) (*query.Signature, *query.Error) {
	c := r.Config()
	of := c.Service(s.Name)
	if of == nil {
		return nil, query.NotFound("unknown model %q", s.Name)
	}
	sig, err := r.Options.Known(of)
	switch {
	case err != nil:
		return nil, unloadable(s.Name, err, 0)
	case sig == nil: // an emulated model has no file
		return nil, query.ErrUnavailable
	}
	return sig, nil
}

// unloadable is what a query gets whose model cannot be loaded.
func unloadable(name string, err error, again time.Duration) *query.Error {
	if errors.Is(err, loop.ErrEnded) {
		return query.ErrDraining
	}
	return &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonGivenUp, RetryAfter: again,
		Message: fmt.Sprintf("the model of service %s could not be loaded: %v", name, err)}
}

// loading is what a query gets that cannot wait for its model.
func loading(name string, after time.Duration) *query.Error {
	return &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonLoading, RetryAfter: max(after, time.Millisecond),
		Message: fmt.Sprintf("the model of service %s is not in memory, and would be too late for this query: try again in %v", name, after.Round(time.Millisecond))}
}

// tooLarge is what a query gets whose model takes more memory than there is for all of them.
func (r *Set) tooLarge(m *resident) *query.Error {
	_, limit := r.set.Used()
	return query.Unavailable(query.ReasonNoMemory, fmt.Sprintf("the model of service %s takes %d MiB, but there are %d MiB for all models: raise memory", m.name, r.set.Bytes(m.id)>>20, limit>>20))
}

// reconsider has a model that took more than all memory loaded for the next query if its file has changed
// since, or if a minute has passed: what was measured may have been a peak.
func (r *Set) reconsider(m *resident) {
	c := r.Config()
	of := c.Service(m.name)
	if of == nil {
		return
	}
	r.mu.Lock()
	size := m.size
	r.mu.Unlock()
	if config.IsPath(of.Model) {
		size = fileBytes(of.Model)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if size != m.size || r.now()-m.measured > reconsiderAfter {
		m.measured = r.now()
		r.expectAgain(m, of, size)
	}
}

// Wake implements [query.Sleeper]. The caller holds nothing but its request, whose body is not read
// yet: of a thousand queries that wait, a thousand goroutines are all there is. At most as many wait
// for a model as may wait in its queue.
func (r *Set) Wake(s *query.Service, arrival time.Time, left <-chan struct{}) *query.Error {
	if !r.onDemand {
		return s.NotReady()
	}
	slack := time.Duration(math.MaxInt64)
	if c := r.Config(); c.Service(s.Name) != nil && !c.Service(s.Name).BestEffort {
		slack = time.Until(arrival.Add(s.QoSTarget))
	}
	r.count(false) // a model whose queries were answered a moment ago may go for this one
	r.mu.Lock()
	m := r.named[s.Name]
	if m == nil {
		r.mu.Unlock()
		return query.NotFound("unknown model %q", s.Name)
	}
	// From here to the unlock nothing may wait: loads and evictions report under the same lock.
	answer := r.set.Ask(r.now(), m.id, slack)
	state, settled := r.set.State(m.id), m.settled
	switch {
	case state == residency.InMemory:
		r.mu.Unlock()
		return nil
	case !answer.Wait && m.fault != nil && state == residency.OnDisk:
		defer r.mu.Unlock()
		return unloadable(s.Name, m.fault, answer.After)
	case answer.After == 0 && state == residency.OnDisk:
		err := r.tooLarge(m)
		r.mu.Unlock()
		r.reconsider(m)
		return err
	case !answer.Wait:
		r.mu.Unlock()
		r.look()
		return loading(s.Name, answer.After)
	case m.waiting >= s.QueueLimit:
		r.mu.Unlock()
		return query.ErrQueueFull
	}
	m.waiting++
	r.mu.Unlock()
	r.look()
	// The channel was read under the lock, so a load that ends now is not missed.
	defer func() {
		r.mu.Lock()
		m.waiting--
		r.mu.Unlock()
	}()
	timer := time.NewTimer(slack)
	defer timer.Stop()
	select {
	case <-settled:
	case <-timer.C:
		return loading(s.Name, answer.After)
	case <-left:
		return query.Unavailable(query.ReasonCancelled, "the client disconnected while the model was loaded")
	case <-r.Life.Done():
		return query.ErrDraining
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.fault != nil {
		return unloadable(s.Name, m.fault, lookEvery)
	}
	return nil
}

// Load has the model of a service loaded by request, and waits for it.
func (r *Set) Load(ctx context.Context, name string) *query.Error {
	return r.want(ctx, name, residency.InMemory)
}

// Unload has the model of a service evicted by request, and waits for it.
func (r *Set) Unload(ctx context.Context, name string) *query.Error {
	return r.want(ctx, name, residency.OnDisk)
}

// want asks for a state of a model and waits until it was reached, which another request may have ended
// again. It asks again after each load and eviction: a model that leaves memory cannot be loaded before
// it is gone, and one that loads cannot be evicted before it is there.
func (r *Set) want(ctx context.Context, name string, state residency.State) *query.Error {
	r.count(false) // a model whose queries were answered a moment ago may go for another one
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.named[name]
	if m != nil && m.keep && state == residency.OnDisk {
		return query.Invalid("service %s has keep = true or variants: it stays in memory", name)
	}
	if m == nil {
		return query.NotFound("unknown model %q", query.Cut(name))
	}
	for before := m.reached; ; {
		now := r.set.State(m.id)
		switch {
		case r.named[name] != m: // a reload has removed it
			return query.NotFound("unknown model %q", query.Cut(name))
		case now == state, m.keep, m.reached[state] != before[state]:
			return nil
		case state == residency.OnDisk:
			r.set.Evict(r.now(), m.id)
			if r.set.State(m.id) == residency.OnDisk { // it has not begun to load
				m.settle()
				return nil
			}
		case now != residency.Leaving && !r.set.Load(r.now(), m.id):
			used, limit := r.set.Used()
			return query.Unavailable(query.ReasonNoMemory, fmt.Sprintf("no memory for the model of service %s: models take %d of %d MiB; unload another one, or raise memory", name, used>>20, limit>>20))
		case now == residency.OnDisk:
			m.fault = nil // of an earlier load
		}
		if err := r.settled(ctx, m); err != nil {
			return err
		}
		if m.fault != nil && state == residency.InMemory {
			return unloadable(name, m.fault, 0)
		}
	}
}

// settled waits until a model has settled, without the lock, which the caller holds.
func (r *Set) settled(ctx context.Context, m *resident) *query.Error {
	settled := m.settled
	m.requests++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		m.requests--
	}()
	r.look()
	select {
	case <-settled:
	case <-ctx.Done():
		return query.Unavailable(query.ReasonCancelled, "the client disconnected; the request is carried out all the same")
	case <-r.Life.Done():
		return query.ErrDraining
	}
	return nil
}

package residents

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"time"

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
	return &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonGivenUp, RetryAfter: again,
		Message: fmt.Sprintf("the model of service %s could not be loaded: %v", name, err)}
}

// loading is what a query gets that cannot wait for its model.
func loading(name string, after time.Duration) *query.Error {
	return &query.Error{Status: http.StatusServiceUnavailable, Reason: query.ReasonLoading, RetryAfter: max(after, time.Millisecond),
		Message: fmt.Sprintf("the model of service %s is not in memory, and would be too late for this query: try again in %v", name, after.Round(time.Millisecond))}
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
	if time.Since(time.Unix(0, r.counted.Load())) > countedFor {
		r.count(false)
	}
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
		r.mu.Unlock()
		return unloadable(s.Name, m.fault, answer.After)
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
	return r.want(ctx, name, residency.InMemory, func(id int) bool { return r.set.Load(r.now(), id) })
}

// Unload has the model of a service evicted by request, and waits for it.
func (r *Set) Unload(ctx context.Context, name string) *query.Error {
	return r.want(ctx, name, residency.OnDisk, func(id int) bool {
		r.set.Evict(r.now(), id)
		return true
	})
}

// want asks for a state of a model and waits until it is reached. It may take several turns: a model
// that is being evicted must be gone before it is loaded.
func (r *Set) want(ctx context.Context, name string, state residency.State, ask func(id int) bool) *query.Error {
	r.mu.Lock()
	m := r.named[name]
	switch {
	case m == nil:
		r.mu.Unlock()
		return query.NotFound("unknown model %q", query.Cut(name))
	case m.keep && state == residency.OnDisk:
		r.mu.Unlock()
		return query.Invalid("service %s has keep = true or variants: it stays in memory", name)
	}
	asked := m.keep || r.set.State(m.id) == state || ask(m.id)
	for asked && !m.keep && r.set.State(m.id) != state {
		settled := m.settled
		r.mu.Unlock()
		r.look()
		select {
		case <-settled:
		case <-ctx.Done():
			return query.Unavailable(query.ReasonCancelled, "the client disconnected; the request is carried out all the same")
		case <-r.Life.Done():
			return query.ErrDraining
		}
		r.mu.Lock()
		if m.fault != nil && state == residency.InMemory {
			defer r.mu.Unlock()
			return unloadable(name, m.fault, 0)
		}
	}
	used, limit := r.set.Used()
	r.mu.Unlock()
	if !asked {
		return query.Unavailable(query.ReasonNoMemory, fmt.Sprintf("no memory for the model of service %s: models take %d of %d MiB; unload another one, or raise memory", name, used>>20, limit>>20))
	}
	return nil
}

package residents

import (
	"cmp"
	"errors"
	"time"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap/residency"
)

const (
	// lookEvery is how often the queries of the models in memory are counted, besides whenever one might
	// be evicted. weighEvery is how often their memory is measured: the kernel goes through all of it for
	// that.
	lookEvery  = time.Second
	weighEvery = 10 * time.Second

	// takeTime is how long freeing the memory of an evicted model may take. Its queries are answered
	// first; what is left then is in the account all the same, when it is weighed again.
	takeTime = 30 * time.Second
)

// look has what is due done soon.
func (r *Set) look() {
	select {
	case r.poke <- struct{}{}:
	default:
	}
}

// Run loads and evicts until the daemon ends. It alone takes steps from the set, so that they are
// carried out in the order in which they are given: a load needs the memory of evictions before it.
func (r *Set) Run() {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	weighed := r.now()
	for {
		select {
		case <-r.Life.Done():
			return
		case <-r.poke:
			r.count(false)
		case <-tick.C:
			weigh := r.now()-weighed >= weighEvery
			if r.count(weigh); weigh {
				weighed = r.now()
			}
			r.release()
		}
		r.mu.Lock()
		for {
			step, ok := r.set.Next(r.now())
			if !ok {
				break
			}
			m := r.byID[step.Model]
			if step.Load {
				r.Running.Go(func() { r.load(m) })
			} else {
				r.Running.Go(func() { r.evict(m) })
			}
		}
		r.mu.Unlock()
	}
}

// Hold keeps models from being loaded and evicted until release is called, for a reload.
func (r *Set) Hold() (release func()) {
	if r == nil {
		return func() {}
	}
	r.changing.Lock()
	return r.changing.Unlock
}

// release has queries and requests ask again whose models no longer wait to be loaded, since no memory
// became free for them.
func (r *Set) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.named {
		if m.waiting+m.requests > 0 && r.set.State(m.id) == residency.OnDisk {
			m.settle()
		}
	}
}

// count tells the set of the queries of the models that are in memory, and of how much they take.
func (r *Set) count(weigh bool) {
	for _, s := range r.Backend.Services() {
		if s.Asleep != nil {
			continue
		}
		total, bytes := ended(s), int64(0)
		r.mu.Lock()
		m := r.named[s.Name]
		first := m != nil && m.keep && r.set.State(m.id) == residency.OnDisk
		r.mu.Unlock()
		if (weigh || first) && s.Ready() {
			bytes = r.weigh(s)
		}
		r.mu.Lock()
		if m != nil {
			if r.set.State(m.id) == residency.InMemory {
				if s.Users() > 0 || total > m.known || r.now() > m.arriving {
					m.arriving = 0
				}
				r.set.Seen(r.now(), m.id, int(max(total, m.counted)-m.counted), s.Users() > 0 || m.arriving > 0)
				m.counted = max(total, m.counted)
			}
			if bytes > 0 {
				r.set.Loaded(r.now(), m.id, bytes)
			}
		}
		r.mu.Unlock()
	}
}

// ended returns how many queries of a service have ended. What is loaded in its place goes on counting.
func ended(s *query.Service) uint64 {
	counts := s.Stats.Counts()
	return counts.Success.Count + counts.Fail.Count
}

// weigh returns the memory of the workers of a service, 0 if that is not known.
func (r *Set) weigh(s *query.Service) (bytes int64) {
	for _, one := range s.Each() {
		for device := range r.Devices {
			if worker, err := r.Backend.Workers(device).State(one.ID); err == nil {
				bytes += r.bytes(worker.PID)
			}
		}
	}
	return bytes
}

// load has the model of a service loaded. The daemon carries it out as it does a reload, so that a
// model which cannot be served has touched nothing.
func (r *Set) load(m *resident) {
	r.changing.RLock()
	c, began := r.Config(), time.Now()
	of := c.Service(m.name)
	if of == nil { // a reload has removed it
		r.changing.RUnlock()
		return
	}
	err := r.resize(m, of)
	if err == nil {
		err = r.Options.Load(of)
	}
	r.changing.RUnlock()
	bytes, known := int64(0), uint64(0)
	if s := r.Backend.Service([]byte(m.name)); err == nil && s != nil {
		bytes, known = r.weigh(s), ended(s)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if m.fault = err; err != nil {
		r.failures++
		r.set.Failed(r.now(), m.id)
		if !errors.Is(err, loop.ErrEnded) {
			r.Log.Error().Err(err).Str("service", m.name).Msg("loading a model failed; its queries are refused until another try succeeds")
		}
	} else {
		r.loads++
		m.loaded, m.measured = true, r.now()
		m.reached[residency.InMemory]++
		r.learn(&c, of, m.size, bytes, time.Since(began))
		m.counted, m.known = known+uint64(m.waiting), known // they were counted as they came
		if m.waiting > 0 {
			m.arriving = r.now() + lookEvery
		}
		r.set.Loaded(r.now(), m.id, cmp.Or(bytes, r.expect(of, m.size).Bytes))
		r.Log.Info().Str("service", m.name).Dur("took", time.Since(began).Round(time.Millisecond)).Int64("bytes", bytes).Msg("model loaded")
	}
	m.settle()
	r.look()
}

// evict has the worker of a service end. Queries that were accepted are answered first; those that come
// from now on find a service that sleeps, and wake it again if that gains more than it costs.
func (r *Set) evict(m *resident) {
	r.changing.RLock()
	defer r.changing.RUnlock()
	c := r.Config()
	if of := c.Service(m.name); of != nil {
		gone := make(chan struct{})
		if !r.Backend.Rest(gone, r, *of) {
			return
		}
		select {
		case <-gone:
		case <-time.After(takeTime):
		case <-r.Life.Done():
			return
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.evictions++
	m.reached[residency.OnDisk]++
	r.set.Gone(r.now(), m.id)
	r.Log.Info().Str("service", m.name).Msg("model evicted")
	m.settle()
	r.look()
}

// settle tells those that wait for the model that a load or an eviction has ended.
func (m *resident) settle() {
	close(m.settled)
	m.settled = make(chan struct{})
}

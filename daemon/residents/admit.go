package residents

import (
	"cmp"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/overlap/residency"
)

// loadsAtOnce is how many models load at the same time. A load computes on one core at low priority,
// and a second one beside it would take as much longer.
const loadsAtOnce = 1

// New returns the residents of a daemon that has some.
func New(o Options) *Set {
	c := o.Config()
	memory := c.Models.Memory
	if memory == 0 {
		memory = int64(memoryShare * float64(hostMemory()))
	}
	r := &Set{
		Options: o, onDemand: c.Models.Load == config.LoadOnDemand, epoch: time.Now(), poke: make(chan struct{}, 1),
		set:   residency.New(memory, config.MaxServices, loadsAtOnce),
		named: map[string]*resident{}, byID: map[int]*resident{}, zoo: map[string]int64{}, bytes: processBytes,
	}
	r.scales.bytes, r.scales.load = 1, 1
	return r
}

// Admit takes in services that are new or have another configuration. Those that are not in memory and
// need not be sleep. It reports false if the loop has ended.
func (r *Set) Admit(c *config.Config, services ...config.Service) bool {
	var sleep []config.Service
	r.mu.Lock()
	for i := range services {
		s := &services[i]
		name, _ := s.Of()
		name = cmp.Or(name, s.Name)
		m := r.named[name]
		if m == nil {
			m = &resident{id: r.next, name: name, settled: make(chan struct{})}
			r.next++
			r.named[name], r.byID[m.id] = m, m
		}
		m.fault, m.keep, m.loaded = nil, c.Stays(s), false
		r.expectAgain(m, s, r.modelBytes(s.Model))
		if now := r.Backend.Service([]byte(name)); !m.keep && (now == nil || now.Asleep != nil) {
			sleep = append(sleep, *s)
		}
	}
	r.mu.Unlock()
	return len(sleep) == 0 || r.Backend.Rest(nil, r, sleep...)
}

// Forget removes a service that sleeps.
func (r *Set) Forget(name string) {
	if r == nil {
		return
	}
	r.mu.Lock()
	m := r.named[name]
	if m != nil {
		delete(r.named, name)
		delete(r.byID, m.id)
		r.set.Delete(m.id)
		m.settle()
	}
	r.mu.Unlock()
	if m != nil {
		r.Backend.Forget(name)
	}
}

// Show adds to a status where models are.
func (r *Set) Show(s *status.Status) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	used, limit := r.set.Used()
	s.Memory = &status.Memory{UsedBytes: used, LimitBytes: limit, Loads: r.loads, Evictions: r.evictions, Failures: r.failures}
	for i := range s.Services {
		name, _, _ := strings.Cut(s.Services[i].Name, "/")
		m := r.named[name]
		if m == nil {
			continue
		}
		to, state := &s.Services[i], r.set.State(m.id)
		to.State, to.MemoryBytes = state.String(), r.set.Taken(m.id)
		if m.fault != nil && state == residency.OnDisk {
			to.State, to.Fault = status.StateFailed, m.fault.Error()
		}
	}
}

// Package residents carries out what package residency decides: it has models loaded and evicted,
// tells it of queries and memory, and holds the queries that wait for their model.
//
// A model is loaded by the way of a reload, and evicted by letting its service sleep, so that counters
// go on and accepted queries are answered. Everything here is behind one lock, which no call holds that
// waits: a query whose model is on disk waits for a channel, and one goroutine (Run) starts loads and
// evictions, each in a goroutine of its own.
package residents

import (
	"cmp"
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/overlap/residency"
)

// Options is what a set of residents is made of.
type Options struct {
	Backend *loop.Backend
	Log     zerolog.Logger

	// Config returns the configuration in effect.
	Config func() config.Config

	// Devices is how many devices there are.
	Devices int

	// Load has a service loaded, and returns once it takes requests.
	Load func(c *config.Service) error

	// Known reads what requests to a service are checked against, nil if that is not known before it
	// is loaded.
	Known func(c *config.Service) (*query.Signature, error)

	// Life ends when the daemon does, and Running counts the goroutines until then.
	Life    context.Context
	Running *sync.WaitGroup
}

// Set is the services whose models are loaded when they are asked for. A nil Set is that of a daemon
// which loads all models at the start.
type Set struct {
	Options
	onDemand bool
	epoch    time.Time

	// changing is held by a reload, and shared by loads and evictions.
	changing sync.RWMutex

	// poke says that something may have to be done.
	poke chan struct{}

	// counted is when count was called last, in Unix nanoseconds.
	counted atomic.Int64

	mu    sync.Mutex
	set   *residency.Set
	named map[string]*resident
	byID  map[int]*resident
	next  int // ID

	// zoo is the sizes of models of the zoo, which are not built before they are loaded.
	zoo map[string]int64

	// scales correct what is expected of the memory and the time of a load.
	scales struct{ bytes, load float64 }

	loads, evictions, failures uint64
}

// resident is a service whose model may be on disk.
type resident struct {
	id   int
	name string

	// settled is closed when a load or an eviction has ended, and replaced. fault is why the last load
	// failed.
	settled chan struct{}
	fault   error

	// waiting is how many queries wait for the model, and counted how many there had been of it.
	waiting int
	counted uint64

	keep bool // it is loaded at the start, and stays
}

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
		named: map[string]*resident{}, byID: map[int]*resident{}, zoo: map[string]int64{},
	}
	r.scales.bytes, r.scales.load = 1, 1
	return r
}

func (r *Set) now() time.Duration { return time.Since(r.epoch) }

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
		m.fault, m.keep = nil, c.Stays(s)
		model := r.expect(s)
		model.Keep = m.keep || !r.onDemand
		r.set.Put(r.now(), m.id, model)
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
		if m := r.named[name]; m != nil {
			s.Services[i].State, s.Services[i].MemoryBytes = r.set.State(m.id).String(), r.set.Taken(m.id)
		}
	}
}

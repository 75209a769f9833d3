// Package residents carries out what package residency decides: it has models loaded and evicted,
// tells it of queries and memory, and holds the queries that wait for their model.
//
// A model is loaded by the steps of a reload, and evicted by letting its service sleep, so that counters
// go on and accepted queries are answered. Everything here is behind one lock, which no call holds that
// waits: a query whose model is on disk waits for a channel, and one goroutine (Run) starts loads and
// evictions, each in a goroutine of its own.
package residents

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap/residency"
)

// backend is a [loop.Backend]. Tests replace it.
type backend interface {
	Services() []*query.Service
	Service(name []byte) *query.Service
	Workers(device int) loop.Workers
	Rest(gone chan struct{}, sleeper query.Sleeper, list ...config.Service) bool
	Forget(name string) bool
}

// Options is what a set of residents is made of.
type Options struct {
	Backend backend
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

	// bytes returns the memory of a process, 0 if it is not known.
	bytes func(pid int) int64

	// changing is held by a reload, and shared by loads and evictions.
	changing sync.RWMutex

	// poke says that something may have to be done.
	poke chan struct{}

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
	size int64 // of the model file

	// settled is closed, and replaced, when a load or an eviction has ended, when the model no longer
	// waits to be loaded, and when the service is removed. fault is why the last load failed.
	settled chan struct{}
	fault   error

	// waiting is how many queries wait for the model, requests how many requests to load or unload it,
	// and counted how many queries there had been of it.
	waiting, requests int
	counted           uint64

	// arriving is until when the queries that waited for the last load may take to reach the service:
	// before the first of them has, the model counts as in use. known is how many queries the service
	// had answered before.
	arriving time.Duration
	known    uint64

	// reached is how often a load and an eviction have ended, by the state that the model had then.
	reached [residency.InMemory + 1]int

	// measured is when the model was loaded last, or reconsidered.
	measured time.Duration

	keep   bool // it is loaded at the start, and stays
	loaded bool // it was once, so that its memory and time are known
}

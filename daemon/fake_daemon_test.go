package daemon

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// measuringIDs is where the IDs of rounds and batches begin that measure.
const measuringIDs = 1 << 63

// rig is a daemon without an endpoint, on fake workers.
type rig struct {
	*Daemon
	t       *testing.T
	workers *fakeworkers.Workers   // of the first device
	pool    []*fakeworkers.Workers // of all
	seen    *follower
	log     fmt.Stringer
	started bool // the loop was
	stopped bool

	services int // at the start
}

// rigOptions says what a rig is. Services overlap unless change says otherwise,
// and few groups are measured.
type rigOptions struct {
	services int
	devices  int    // of the pool, 0 for the one that has no name
	dir      string // state_dir, "" for a new one
	device   *fakeworkers.Device
	fit      loop.FitFunc
	change   func(*config.Config)
	prepare  func(*fakeworkers.Workers) // before the workers start
	move     func(uint64, loop.Workers, loop.Workers, executor.SpanRequest, time.Duration) error
}

// follower listens to a loop.
type follower struct {
	mu      sync.Mutex
	open    int // queries that were accepted and not answered
	dropped int // services that are gone
}

func (f *follower) Observe(e *observe.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch e.Kind {
	case observe.Accepted:
		f.open++
	case observe.Answered:
		f.open--
	case observe.Dropped:
		f.dropped++
	}
}

// counts returns how many queries are open, and how many services are gone.
func (f *follower) counts() (open, dropped int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open, f.dropped
}

// newRig makes a daemon whose loop does not run yet.
func newRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	if o.dir == "" {
		o.dir = t.TempDir()
	}
	c := fakeworkers.Config(o.services, func(c *config.Config) {
		c.Policy, c.StateDir = "overlap", o.dir
		p := &c.Profile
		p.OnStart, p.Time, p.Groups, p.Repeats, p.Spans = true, time.Minute, 12, 3, 2
		for i := range c.Services {
			c.Services[i].Sizes = []int{1, 2}
		}
		for i := range o.devices {
			c.Devices = append(c.Devices, config.Device{Name: fmt.Sprint("d", i), Kind: config.DeviceCPU, Cores: fmt.Sprint(i)})
		}
		if o.change != nil {
			o.change(c)
		}
	})
	log := fakeworkers.NewLog()
	r := &rig{t: t, services: o.services, workers: fakeworkers.New(t, 0, o.services), seen: &follower{}, log: log}
	r.pool = append(r.pool, r.workers)
	for i := 1; i < o.devices; i++ {
		r.pool = append(r.pool, fakeworkers.New(t, i, o.services))
	}
	for _, f := range r.pool {
		f.RunsOn(o.device)
		if o.prepare != nil {
			o.prepare(f)
		}
	}
	d, err := New(c, Options{
		Version: "test", Device: "fake", Nodes: [][]int{{0}}, Fit: o.fit, Offline: true, move: o.move, listener: r.seen,
		Log: zerolog.New(log).Level(zerolog.DebugLevel),
		workers: func(e executor.Options) (loop.Workers, error) {
			var inputs []*wire.InputArena
			for _, s := range e.Services {
				inputs = append(inputs, s.Inputs)
			}
			r.pool[e.Device].Delivers(inputs, e.Outcomes, e.Events)
			return r.pool[e.Device], nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Daemon = d
	level := zerolog.GlobalLevel() // which a reload sets
	t.Cleanup(func() { r.stop(); zerolog.SetGlobalLevel(level) })
	return r
}

// startRig makes a daemon whose workers are ready.
func startRig(t *testing.T, o rigOptions) *rig {
	t.Helper()
	r := newRig(t, o)
	r.turn()
	for _, f := range r.pool {
		if err := f.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	r.sync()
	return r
}

// turn starts the loop, but no workers.
func (r *rig) turn() {
	r.started = true
	r.backend.Begin()
}

// sync returns when the loop has handled all that it was told.
func (r *rig) sync() { r.backend.Ask(func() {}) }

// stop ends the daemon as Run does, once.
func (r *rig) stop() {
	r.t.Helper()
	if r.stopped {
		return
	}
	r.stopped = true
	limit, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if r.started {
		r.backend.Drain()
		if err := r.backend.StopMeasuring(limit); err != nil {
			r.t.Errorf("measuring does not stop: %v", err)
		}
		r.saveProfiles()
	}
	if err := r.close(); err != nil {
		r.t.Errorf("closing: %v", err)
	}
	for _, f := range r.pool {
		f.Check()
	}
}

// predictor returns how predictions stand.
func (r *rig) predictor() status.Predictor {
	r.t.Helper()
	o, ok := r.backend.FullStatus()
	if !ok {
		r.t.Fatal("the loop does not answer")
	}
	return o.Predictor
}

// await waits for a phase and returns how predictions stand in it.
func (r *rig) await(phase string) (p status.Predictor) {
	r.t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if p = r.predictor(); p.Phase == phase {
			return p
		}
	}
	r.t.Fatalf("not %s, but %s: %s\n%s", phase, p.Phase, p.Reason, r.log)
	return p
}

// says fails the test unless a text has all of the parts.
func says(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("it does not say %q:\n%s", part, text)
		}
	}
}

// serves fails the test unless every service answers a query.
func (r *rig) serves() {
	r.t.Helper()
	for i := range r.backend.Services() {
		if err := answerOf(r.t, r.backend, mustSubmit(r.t, r.backend, i)); err != nil {
			r.t.Errorf("service %d: %v", i, err)
		}
	}
}

// stored returns what a daemon that has ended left in its state file, of these
// models, or all if there are none.
func stored(t *testing.T, dir string, list ...training.Model) (*training.Dataset, map[string][]training.OperatorTimes) {
	t.Helper()
	s, err := OpenState(dir, true, checkState)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d, err := s.Datasets().Dataset(fakeworkers.DeviceName, list)
	if err != nil {
		t.Fatal(err)
	}
	operators, err := s.Datasets().Operators(fakeworkers.DeviceName, d.Models)
	if err != nil {
		t.Fatal(err)
	}
	return d, operators
}

// errNoFit is why fitting fails where a test wants it to.
var errNoFit = errors.New("the rows do not suffice")

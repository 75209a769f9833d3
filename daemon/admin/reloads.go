package admin

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/overlapd/overlapd/daemon"
	"github.com/overlapd/overlapd/daemon/config"
)

// ReloadFunc reads the configuration again and makes the daemon follow it. A
// [config.Faults] error says that the configuration is wrong.
type ReloadFunc func(ctx context.Context, progress func(daemon.ReloadStep)) (*daemon.Reloaded, error)

// Reloads runs one reload at a time and remembers the last.
type Reloads struct {
	life context.Context // ends when the daemon stops, and with it a reload
	do   ReloadFunc
	runs sync.WaitGroup

	mu struct {
		sync.Mutex
		last    *Reload
		running bool
	}
}

// NewReloads returns a daemon's reloads, of which there was none yet. A reload
// ends with life, and none begins after it.
func NewReloads(life context.Context, do ReloadFunc) *Reloads { return &Reloads{life: life, do: do} }

// Begin begins a reload, or returns ErrBusy or ErrStopping. It runs on whoever
// waits for it or not: half a reload is none.
func (r *Reloads) Begin() (*Reload, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.life.Err() != nil:
		return nil, ErrStopping
	case r.mu.running:
		return nil, ErrBusy
	}
	run := newReload(time.Now())
	r.mu.last, r.mu.running = run, true
	r.runs.Go(func() {
		reloaded, err := r.do(r.life, run.step)
		r.mu.Lock()
		r.mu.running = false
		r.mu.Unlock()
		run.finish(reloaded, wrong(err))
	})
	return run, nil
}

// Next waits for the reload that runs, if there is one, and begins another.
func (r *Reloads) Next() (*Reload, error) {
	for {
		run, err := r.Begin()
		if !errors.Is(err, ErrBusy) {
			return run, err
		}
		if last := r.Last(); last != nil {
			<-last.Done()
		}
	}
}

// Last returns the reload that runs, or the last one, or nil.
func (r *Reloads) Last() *Reload {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.last
}

// Wait returns when no reload runs any more. It is for the end: none may begin
// then.
func (r *Reloads) Wait() { r.runs.Wait() }

// wrong tells a wrong configuration from other errors.
func wrong(err error) error {
	if faults, ok := errors.AsType[config.Faults](err); ok {
		return &Error{KindConfig, faults.Error()}
	}
	return err
}

// Reload is one reload, running or over.
type Reload struct {
	began time.Time
	done  chan struct{}

	mu struct {
		sync.Mutex
		steps    []progress // the latest of each service, in the order of their first
		version  int        // of the latest step
		grown    chan struct{}
		reloaded *daemon.Reloaded
		err      error
	}
}

// progress is a step, and when it came in the order of all of them.
type progress struct {
	daemon.ReloadStep
	version int
}

func newReload(began time.Time) *Reload {
	r := &Reload{began: began, done: make(chan struct{})}
	r.mu.grown = make(chan struct{})
	return r
}

// step takes in progress. Whoever looks sees the latest of each service, so
// that nobody who is slow makes a reload wait or take memory.
func (r *Reload) step(s daemon.ReloadStep) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.version++
	latest := progress{s, r.mu.version}
	for i := range r.mu.steps {
		if r.mu.steps[i].Service == s.Service {
			r.mu.steps[i] = latest
			r.growLocked()
			return
		}
	}
	if len(r.mu.steps) < maxSteps {
		r.mu.steps = append(r.mu.steps, latest)
		r.growLocked()
	}
}

// maxSteps is of how many services progress is kept: those that go and those
// that come.
const maxSteps = 2 * config.MaxServices

func (r *Reload) growLocked() {
	close(r.mu.grown)
	r.mu.grown = make(chan struct{})
}

func (r *Reload) finish(reloaded *daemon.Reloaded, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.reloaded, r.mu.err = reloaded, err
	close(r.done)
}

// Done is closed when it is over.
func (r *Reload) Done() <-chan struct{} { return r.done }

// Result returns what became of it once it is over.
func (r *Reload) Result() (*daemon.Reloaded, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.reloaded, r.mu.err
}

// since returns the steps after a version, the latest version, and what is
// closed when there are more.
func (r *Reload) since(version int) (steps []daemon.ReloadStep, latest int, grown <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.steps {
		if p.version > version {
			steps = append(steps, p.ReloadStep)
		}
	}
	return steps, r.mu.version, r.mu.grown
}

package admin

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// Host is the daemon that is administered. An [Error] keeps its kind; any other error has
// the kind "failed".
type Host interface {
	// Reload reads the configuration again and applies it. A [config.Faults] error means
	// that the configuration is invalid.
	Reload(ctx context.Context, progress func(config.Step)) (*config.Reloaded, error)

	// Restart starts a service again that has failed permanently.
	Restart(service string) error

	// Leave starts or cancels draining. A drained daemon reports that it is not ready and
	// answers queries as before.
	Leave(leaves bool) error

	// Open returns the number of unanswered requests by service, and how many requests have
	// ended.
	Open() (open map[string]int64, ended uint64, err error)

	// Config returns the configuration in effect as a TOML file, without secrets.
	Config() ([]byte, error)
}

// Reloads serializes reloads and remembers the last one. Both the admin socket and SIGHUP
// use it.
type Reloads struct {
	// life is done when the daemon stops. A running reload then ends.
	life context.Context
	host Host
	runs sync.WaitGroup

	mu struct {
		sync.Mutex
		last *running
	}
}

// NewReloads returns a Reloads for host. life cancels a running reload, and none begins
// after it is done.
func NewReloads(life context.Context, host Host) *Reloads { return &Reloads{life: life, host: host} }

// Begin starts a reload, or returns ErrBusy or ErrStopping. The reload does not depend on
// the caller: it runs to its end even if nobody waits for it, because half a reload would
// leave the daemon in an undefined state.
func (r *Reloads) Begin() (*running, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.life.Err() != nil {
		return nil, ErrStopping
	}
	if last, _ := r.mu.last.Report(); last.State == reportRunning {
		return nil, ErrBusy
	}
	run := newReload()
	r.mu.last = run
	r.runs.Go(func() { run.finish(r.host.Reload(r.life, run.step)) })
	return run, nil
}

// Next waits for a running reload, if there is one, and starts another.
func (r *Reloads) Next() (*running, error) {
	for {
		run, err := r.Begin()
		if !errors.Is(err, ErrBusy) {
			return run, err
		}
		<-r.Last().Done()
	}
}

// Last returns the running reload, or else the last one, or nil if there was none.
func (r *Reloads) Last() *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.last
}

// Wait returns when no reload is running. It must only be called when none can begin.
func (r *Reloads) Wait() { r.runs.Wait() }

// running is one reload, which may have ended.
type running struct {
	done chan struct{}

	mu struct {
		sync.Mutex
		report Report

		// grown is closed when report has changed.
		grown chan struct{}
	}
}

// newReload returns a reload that begins now.
func newReload() *running {
	r := &running{done: make(chan struct{})}
	r.mu.report = Report{State: reportRunning, Began: time.Now()}
	r.mu.grown = make(chan struct{})
	return r
}

// Done returns a channel that is closed when the reload has ended.
func (r *running) Done() <-chan struct{} { return r.done }

// Report returns the state of the reload and a channel that is closed when it has changed.
// It may be called on nil, which reports that there was no reload.
func (r *running) Report() (now Report, grown <-chan struct{}) {
	if r == nil {
		return Report{State: ReportNone}, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now = r.mu.report
	now.Steps = slices.Clone(now.Steps)
	return now, r.mu.grown
}

// step records progress. Only the latest step of each service is kept, so that slow readers
// neither delay a reload nor take memory.
func (r *running) step(s config.Step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	steps := &r.mu.report.Steps
	at := slices.IndexFunc(*steps, func(of config.Step) bool { return of.Service == s.Service })
	if at < 0 {
		*steps = append(*steps, s)
	} else {
		(*steps)[at] = s
	}
	r.growLocked()
}

// growLocked wakes up everyone who waits for a change.
func (r *running) growLocked() {
	close(r.mu.grown)
	r.mu.grown = make(chan struct{})
}

// finish records the outcome of the reload.
func (r *running) finish(reloaded *config.Reloaded, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer close(r.done)
	if report := &r.mu.report; err != nil {
		report.State, report.Error = reportFailed, told(err)
	} else {
		report.State, report.Reloaded = reportDone, reloaded
	}
	r.growLocked()
}

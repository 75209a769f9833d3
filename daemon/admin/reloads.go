package admin

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
)

// Host is the daemon that is administered. An error that is an [Error] has a kind,
// all others have failed.
type Host interface {
	// Reload reads the configuration again and makes the daemon follow it. A
	// [config.Faults] error means that the configuration is wrong.
	Reload(ctx context.Context, progress func(config.Step)) (*config.Reloaded, error)

	// Restart tries a service again that was given up.
	Restart(service string) error

	// Leave has the daemon say that it is not ready, and answer queries as before; or not
	// any more.
	Leave(leaves bool) error

	// Open returns how many requests each service has that are not answered, and how many
	// have ended.
	Open() (open map[string]int64, ended uint64, err error)

	// Config returns the configuration that holds now, as a file, without what
	// is secret in it.
	Config() ([]byte, error)
}

// Reloads runs one reload at a time and remembers the last.
type Reloads struct {
	life context.Context // ends when the daemon stops, and with it a reload
	host Host
	runs sync.WaitGroup

	mu struct {
		sync.Mutex
		last *running
	}
}

// NewReloads returns a daemon's reloads, of which there was none yet. A reload
// ends with life, and none begins after it.
func NewReloads(life context.Context, host Host) *Reloads { return &Reloads{life: life, host: host} }

// Begin begins a reload, or returns ErrBusy or ErrStopping. It runs on whoever
// waits for it or not: half a reload is none.
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

// Next waits for the reload that runs, if there is one, and begins another.
func (r *Reloads) Next() (*running, error) {
	for {
		run, err := r.Begin()
		if !errors.Is(err, ErrBusy) {
			return run, err
		}
		<-r.Last().Done()
	}
}

// Last returns the reload that runs, or the last one, or nil.
func (r *Reloads) Last() *running {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.last
}

// Wait returns when no reload runs any more. It is for the end: none may begin
// then.
func (r *Reloads) Wait() { r.runs.Wait() }

// running is one reload, running or over.
type running struct {
	done chan struct{}

	mu struct {
		sync.Mutex
		report Report
		grown  chan struct{} // closed when the report is another
	}
}

func newReload() *running {
	r := &running{done: make(chan struct{})}
	r.mu.report = Report{State: reportRunning, Began: time.Now()}
	r.mu.grown = make(chan struct{})
	return r
}

// Done is closed when it is over.
func (r *running) Done() <-chan struct{} { return r.done }

// Report returns how the reload stands, and what is closed when it stands
// otherwise. A nil one reports that there was none.
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

// step takes in progress. Whoever looks sees the latest of each service, so
// that nobody who is slow makes a reload wait or take memory.
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

func (r *running) growLocked() {
	close(r.mu.grown)
	r.mu.grown = make(chan struct{})
}

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

package loop

import (
	"context"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// scheduler is what the loop drives: an [overlap.Scheduler], or the one of
// package journal that records it.
type scheduler interface {
	Arrive(now time.Duration, q models.Query) error
	Cancel(now time.Duration, id models.QueryID) (stop models.BatchID, running bool)
	Next(now time.Duration) (overlap.Round, bool)
	Plan(now time.Duration)
	Finish(now time.Duration, o models.Outcome) error
	Wake() (at time.Duration, ok bool)
	Idle() bool
	Drain(now time.Duration)
	Answers() []overlap.Answer
	Released() []overlap.Release
	Members(id models.BatchID) []models.QueryID

	Down(now time.Duration, id models.ServiceID)
	Up(now time.Duration, id models.ServiceID)
	Load(now time.Duration, m models.Service) error
	Add(now time.Duration, m models.Service) error
	Change(now time.Duration, m models.Service) error
	Remove(now time.Duration, id models.ServiceID) error

	Explain() overlap.Explanation
	Metrics() overlap.Metrics
	Waiting(to []overlap.Waiting) []overlap.Waiting
}

// Workers is what a loop asks of the [executor.Executor].
type Workers interface {
	Start(context.Context) error
	Run(round uint64, spans []executor.SpanRequest) error
	Outcomes() <-chan executor.Outcome
	Stop(models.ServiceID, models.BatchID) bool
	Release(models.ServiceID, models.BatchID)
	Arena(models.ServiceID) *wire.InputArena
	State(models.ServiceID) (executor.State, error)
	Add(executor.ServiceSpec) error
	Remove(models.ServiceID) (<-chan error, error)
	Close() error
}

// Profiles stores what was measured of each model, and has it when the same model
// is loaded on the same device. Its methods are called in the scheduler goroutine.
type Profiles interface {
	// Solo returns the operator times of a model on a share of the device.
	Solo(service, share string, info *wire.Info) (predictor.Snapshot, bool)
	// Calibration returns how well a predictor did for the models that key names.
	Calibration(key string) (predictor.CalibrationSnapshot, bool)
	// ChoseCut stores into how many operators a worker has cut its model.
	ChoseCut(s config.Service, share string, c *wire.CutChoice)
}

// core is what the parts of the scheduler goroutine share. Besides the mailbox,
// nothing else touches it once the goroutine runs.
type core struct {
	mailbox
	*query.Registry
	Options
	config    config.Config
	scheduler scheduler
	exec      Workers
	solo      *predictor.Solo
	predictor *predictor.Predictor // estimates groups, with the help of solo
	learning  *learning.Learner    // which the learner obeys
	serves    query.Backend        // what the services are served by
	memory    observe.Event        // used by emit
}

// Options is what a loop is made of besides its configuration.
type Options struct {
	Log        zerolog.Logger
	Device     string            // what the services run on, in words
	MeasuredAs string            // the device that an emulated one is made after, as datasets name it
	GPU        func() gpu.Status // nil without a GPU
	Places     []Place           // where each service runs, in the order of the configuration
	Learning   learning.Options
	Fit        FitFunc            // nil if no predictor is to be fitted
	Profiles   Profiles           // nil where nothing is stored
	Keeper     *Keeper            // writes to the state file
	Listeners  []observe.Listener // besides the timeline and traces
	Journal    *journal.Writer    // nil if decisions are not logged
	Header     journal.Header     // begins the journal; the loop sets its epoch

	// Workers makes what runs rounds. It passes on what happens to workers, from
	// when they are started.
	Workers func(events func(executor.Event)) (Workers, error)

	Life       context.Context // ends when the daemon closes
	Goroutines *sync.WaitGroup // those that run besides the loop
}

// Ready implements [query.Host].
func (c *core) Ready() bool {
	if c.draining.Load() {
		return false
	}
	for _, s := range c.Services() {
		if !s.Ready() {
			return false
		}
	}
	return true
}

// emit shows the listeners an event, in memory that is used again: they get a
// pointer, which would otherwise cost an allocation each time.
func (c *core) emit(e observe.Event) {
	c.memory = e
	for _, x := range c.Listeners {
		x.Observe(&c.memory)
	}
}

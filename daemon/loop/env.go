package loop

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// door is how the loop drives the scheduler: an [overlap.Scheduler] itself, or the [journal.Tee]
// that records what passes.
type door interface {
	Step(now time.Duration, e *overlap.Event) error
	Ready(now time.Duration) overlap.Ready
	Advance(now time.Duration)
}

// What is stored of each model and device, by keys that name what it holds for.
const (
	SoloProfiles = "solo-profiles" // operator times
	Calibrations = "calibrations"  // how well predictors did
)

// profiles stores what was measured, and has it when the same model is loaded on the
// same device. Its methods are called in the scheduler goroutine.
type profiles interface {
	// Stored reads what was stored under a key, and is false if nothing was.
	Stored(kind, key string, value any) bool
	// ChoseCut stores into how many operators a worker has cut its model.
	ChoseCut(s config.Service, p Place, c *wire.CutChoice)
}

// FitFunc fits a predictor to measured groups. The operator times are those of
// each model by name.
type FitFunc func(ctx context.Context, d *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error)

// Place is what a service is given on a device.
type Place struct {
	Device int // its position in Options

	// Share describes what else than the model and the device decides how long the
	// operators take, such as threads. Profiles and datasets are kept by it.
	Share string

	// Model is the name by which an emulated device knows the model, which takes
	// batches and sequences up to MaxBatch and MaxSeqLen. On a device that computes
	// it is empty, and the worker finds the limits.
	Model               string
	MaxBatch, MaxSeqLen int

	// Worker describes the worker to the executor. Its ID and Inputs are the loop's.
	Worker executor.ServiceSpec

	// GiveBack returns what the service was admitted to of a GPU's memory.
	GiveBack func()
}

// env is what every part of the loop works with. But for the mailbox and the breadth, only the
// scheduler goroutine touches it once that runs.
type env struct {
	options  Options
	log      zerolog.Logger
	config   config.Config
	mail     *mailbox
	breadth  breadth
	registry query.Registry // where requests find services
	devices  []*device
	texts    []string // the devices in words
	names    []string // and as the configuration has them
	kinds    []*kind
	timeline *timeline.Ring // remembers the last rounds

	// scheduler is the one behind the door, for questions that change nothing.
	door      door
	scheduler *overlap.Scheduler

	// The memory of step and of emit: what gets a pointer would cost an allocation each time.
	stepped overlap.Event
	emitted observe.Event
}

// Options is what a loop is made of besides its configuration.
type Options struct {
	Log       zerolog.Logger
	Devices   []Device  // one at least
	Places    [][]Place // where each service runs, in the order of the configuration
	Learning  learning.Options
	Fit       FitFunc            // nil if no predictor is to be fitted
	Profiles  profiles           // nil where nothing is stored
	Keeper    *Keeper            // writes to the state file
	Listeners []observe.Listener // besides the timeline and traces
	Journal   *journal.Writer    // nil if decisions are not logged

	// Move is how a batch goes from the workers of a device to those of another: see
	// [executor.Move].
	Move func(number uint64, from, to Workers, batch executor.SpanRequest, planned time.Duration) error

	Header journal.Header // begins the journal; the loop sets its epoch

	// Processors is how many processors this process may use while the loop runs, which
	// decides how many it does: see breadth. 0 leaves that to the Go runtime.
	Processors int

	Life       context.Context // ends when the daemon closes
	Goroutines *sync.WaitGroup // those that run besides the loop
}

func (e *env) now() time.Duration { return e.mail.now() }

// step gives the scheduler an event that has just happened.
func (e *env) step(x overlap.Event) error {
	e.stepped = x
	return e.door.Step(e.now(), &e.stepped)
}

// emit shows the listeners an event.
func (e *env) emit(x observe.Event) {
	e.emitted = x
	for _, l := range e.options.Listeners {
		l.Observe(&e.emitted)
	}
}

// keep has the keeper do a job, which may use all processors.
func (e *env) keep(what string, do func(*training.Store) error) bool {
	return e.options.Keeper.Keep(what, func(s *training.Store) error {
		defer e.breadth.hold()()
		return do(s)
	})
}

// maxRetries is how often a query is run again whose worker was lost.
const maxRetries = 2

// schedule makes the scheduler of services, which are all down, and records it if decisions are
// logged.
func (e *env) schedule(list []models.Service, by overlap.Selector) error {
	rules := overlap.Config{Services: list, Policy: e.config.Policy, MaxRetries: maxRetries, RoundTime: overlap.DefaultRoundTime, Selector: by}
	for _, d := range e.devices {
		if d.Emulated { // the emulation charges nothing for a round
			rules.RoundTime = 0
		}
		rules.Devices = append(rules.Devices, d.kind.predictor)
		rules.Alone = append(rules.Alone, d.Alone)
		rules.Units = append(rules.Units, len(d.runs))
	}
	if slices.Max(rules.Units) == 1 {
		rules.Units = nil
	}
	if !slices.Contains(rules.Alone, true) {
		rules.Alone = nil
	}
	if e.options.Journal != nil {
		e.options.Header.Epoch = e.mail.epoch
		tee, err := journal.New(rules, e.options.Journal, e.options.Header)
		if err != nil {
			return err
		}
		e.door, e.scheduler = tee, tee.Scheduler
	} else {
		s, err := overlap.New(rules)
		if err != nil {
			return err
		}
		e.door, e.scheduler = s, s
	}
	for i := range list {
		for _, d := range e.devices {
			_ = e.step(overlap.Event{Kind: overlap.Down, Service: models.ServiceID(i), Device: d.index})
		}
	}
	return nil
}

// place makes the devices of a pool, without workers, for services of so many operators.
func (e *env) place(list []Device, operators []int) (err error) {
	named := map[string]*kind{}
	for i := range list {
		d := &device{Device: list[i], index: i, kind: named[list[i].Kind]}
		if d.kind == nil {
			k := &kind{index: len(e.kinds), profiled: map[models.ServiceID]string{}}
			if k.solo, err = predictor.NewSolo(operators...); err != nil {
				return err
			}
			k.solo.Divide(max(d.Units, 1))
			k.predictor = predictor.New(k.solo)
			named[d.Kind], d.kind, e.kinds = k, k, append(e.kinds, k)
		}
		for range max(d.Units, 1) {
			d.runs = append(d.runs, new(running))
		}
		d.kind.devices = append(d.kind.devices, d)
		e.devices, e.texts, e.names = append(e.devices, d), append(e.texts, d.Text), append(e.names, d.Name)
	}
	return nil
}

// forget has nothing known of how long the operators of a service take.
func (e *env) forget(id models.ServiceID, operators int) (err error) {
	for _, k := range e.kinds {
		delete(k.profiled, id)
		err = errors.Join(err, k.predictor.Reset(id, operators))
	}
	return err
}

// drop takes a service out of all predictors.
func (e *env) drop(id models.ServiceID) (err error) {
	for _, k := range e.kinds {
		delete(k.profiled, id)
		err = errors.Join(err, k.predictor.Drop(id))
	}
	return err
}

// changed is called when the services on devices are others, or their models are.
func (e *env) changed() {
	for _, k := range e.kinds {
		k.learning.Changed()
	}
}

package loop

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
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

// Profiles stores what was measured, and has it when the same model is loaded on the
// same device. Its methods are called in the scheduler goroutine.
type Profiles interface {
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

// core is what the parts of the scheduler goroutine share. Besides the mailbox,
// nothing else touches it once the goroutine runs.
type core struct {
	mailbox
	*query.Registry
	Options
	config config.Config
	door   door

	// scheduler is the one behind the door, for questions that change nothing.
	scheduler *overlap.Scheduler
	event     overlap.Event // used by step
	pool
	outcomes chan executor.Outcome // of all devices
	memory   observe.Event         // used by emit
	timeline *timeline.Ring        // what remembers the last rounds
	breadth  breadth
}

// Options is what a loop is made of besides its configuration.
type Options struct {
	Log       zerolog.Logger
	Devices   []Device  // one at least
	Places    [][]Place // where each service runs, in the order of the configuration
	Learning  learning.Options
	Fit       FitFunc            // nil if no predictor is to be fitted
	Profiles  Profiles           // nil where nothing is stored
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

// NotReady implements [query.Host].
func (c *core) NotReady() *query.Error {
	switch {
	case c.Draining():
		return query.ErrDraining
	case c.Leaving():
		return query.ErrDrained
	case !query.AnyReady(c.Services(), c.config.Ready == config.ReadyAll):
		return query.ErrUnavailable
	}
	return nil
}

// Broaden has this process use all processors that it may until release is called: for
// work that computes for more than a moment, or waits for a disk.
func (c *core) Broaden() (release func()) { return c.breadth.hold() }

// keep has the keeper do a job.
func (c *core) keep(what string, do func(*training.Store) error) bool {
	return c.Keeper.Keep(what, func(s *training.Store) error {
		defer c.Broaden()()
		return do(s)
	})
}

// step gives the scheduler an event that has just happened, in memory that is used again.
func (c *core) step(e overlap.Event) error {
	c.event = e
	return c.door.Step(c.Now(), &c.event)
}

// Draining reports whether no further queries are taken.
func (c *core) Draining() bool { return c.draining.Load() }

// emit shows the listeners an event, in memory that is used again: they get a
// pointer, which would otherwise cost an allocation each time.
func (c *core) emit(e observe.Event) {
	c.memory = e
	for _, x := range c.Listeners {
		x.Observe(&c.memory)
	}
}

const (
	// inboxLimit is how many messages may wait for the scheduler goroutine.
	// A query that finds the inbox full is refused as if its queue were full.
	inboxLimit = 8192

	// heartbeat is how often the scheduler goroutine shows that it is alive.
	heartbeat = time.Second

	// Stalled is for how long it may show nothing before it counts as hanging.
	Stalled = 10 * time.Second
)

// mailbox is how other goroutines reach the scheduler goroutine, and how they see
// that it is alive.
type mailbox struct {
	epoch    time.Time
	inbox    chan message
	board    status.Board
	ending   chan struct{} // closed when no more messages are taken
	done     chan struct{} // closed when the goroutine has ended
	draining atomic.Bool
	leaving  atomic.Bool   // it says that it is not ready, and still takes queries
	lastID   atomic.Uint64 // of a query
	beat     atomic.Int64  // when the goroutine last rested, since the epoch
}

// message is what the scheduler goroutine is told. One of the fields is set, or none
// to wake it.
type message struct {
	call   *query.Call
	cancel models.QueryID
	ask    func() // run by the loop, for what only it may read
}

// Now returns the time since the loop was made, by the monotonic clock.
func (m *mailbox) Now() time.Duration { return time.Since(m.epoch) }

// Beat returns when the loop last had nothing more to do.
func (m *mailbox) Beat() time.Duration { return time.Duration(m.beat.Load()) }

// Live implements [query.Host]: it reports whether the loop still turns.
func (m *mailbox) Live() bool { return m.Now()-m.Beat() < Stalled }

// Draining reports whether further queries are refused.
func (m *mailbox) Draining() bool { return m.draining.Load() }

// Leave has the daemon say that it is not ready, or not any more, and go on as before: who
// balances learns of it late.
func (m *mailbox) Leave(leaves bool) { m.leaving.Store(leaves) }

// Leaving reports whether the daemon says that it is not ready because it is to be stopped.
func (m *mailbox) Leaving() bool { return m.leaving.Load() }

// Ask runs f in the loop and waits for it. It reports false if the loop has ended.
func (m *mailbox) Ask(f func()) bool {
	ran := make(chan struct{})
	m.tell(message{ask: func() { f(); close(ran) }})
	select {
	case <-ran:
		return true
	case <-m.done:
		return false
	}
}

// tell puts a message in the inbox. It may not be lost, so it waits: the loop
// drains its inbox for as long as there is somebody to tell.
func (m *mailbox) tell(x message) {
	select {
	case m.inbox <- x:
	case <-m.ending:
	}
}

// refuseAll answers the calls that the loop will not take any more. Every
// call in the inbox is answered by it: the loop runs it after ending is
// closed, and so does whoever put a call there and then finds ending closed.
func (m *mailbox) refuseAll() {
	for {
		select {
		case x := <-m.inbox:
			if x.call != nil {
				x.call.Answer(query.Reply{Err: query.ErrDraining})
			}
		default:
			return
		}
	}
}

// keeperJobs is how many jobs may wait for the keeper. While that many do,
// nothing further is measured.
const keeperJobs = 64

// Keeper works on the state file away from the scheduler goroutine: a
// transaction waits for the disk.
type Keeper struct {
	store *training.Store
	log   zerolog.Logger
	jobs  chan learning.Job
}

func NewKeeper(store *training.Store, log zerolog.Logger) *Keeper {
	return &Keeper{store: store, log: log, jobs: make(chan learning.Job, keeperJobs)}
}

// Run does the jobs until close.
func (k *Keeper) Run() {
	for job := range k.jobs {
		if err := job.Do(k.store); err != nil {
			k.log.Warn().Err(err).Msg(job.What)
		}
	}
}

// Full reports whether the next job would not be taken.
func (k *Keeper) Full() bool { return len(k.jobs) == cap(k.jobs) }

// Keep takes a job, or reports that there are too many.
func (k *Keeper) Keep(what string, do func(*training.Store) error) bool {
	select {
	case k.jobs <- learning.Job{What: what, Do: do}:
		return true
	default:
		k.log.Warn().Str("job", what).Msg("state write skipped: queue full")
		return false
	}
}

// Close lets Run end once the jobs that were taken are done.
func (k *Keeper) Close() { close(k.jobs) }

package executor

import (
	"cmp"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Options configures an executor. Zero values select the defaults.
type Options struct {
	// Command is the argv of a worker process.
	Command []string

	// Inside, if set, runs the workers on goroutines in place of Command.
	Inside   Inside
	Services []ServiceSpec

	// Outcomes, if set, is the channel on which the executors of a device pool
	// deliver their outcomes; Device identifies the executor. It must have room
	// for MaxOutcomes of each of them. The caller closes it after all of them.
	Outcomes chan Outcome
	Device   int

	// LoadTimeout is the limit from the start of a process until it is ready.
	LoadTimeout time.Duration

	// SpanTimeout is the watchdog's limit: a worker whose span takes longer is
	// killed.
	SpanTimeout time.Duration

	// OverrunGrace is how long an abandoned span may take to reach the end of an
	// operator before its worker is killed.
	OverrunGrace time.Duration
	// Affinity lists the cores that worker processes run on, nil for those of this
	// process. Executors that share no core do not slow each other down.
	Affinity []int

	// Cores is how many cores the spans of a round share, 0 if they compute
	// elsewhere; see [wire.Run]. Workers must have a session for a single thread.
	Cores int

	// Poll is how long both ends of a worker's socket poll for the next message
	// before they sleep; 0 disables polling.
	Poll time.Duration

	// CloseGrace is how long a worker may take to exit by itself when the executor
	// closes or its service is removed.
	CloseGrace time.Duration

	// Policy decides when a lost worker is restarted, and when its service fails
	// permanently.
	child.Policy

	// A service that failed permanently is retried after RetryMin. The back-off
	// doubles with each further failure up to RetryMax, until the worker has
	// served for HealthyAfter.
	RetryMin, RetryMax time.Duration

	// BeforeKill, if set, is called before the executor kills a worker that still
	// owes an answer, to a load request too. It may protect other processes that
	// share a device with that worker from its end. The worker's rounds are over
	// by then. BeforeKill must return within a bounded time.
	BeforeKill func(id models.ServiceID, pid int)

	// Events receives what happens to the workers. It is called from several
	// goroutines and must return soon.
	Events func(Event)
}

// ServiceSpec describes a service and its worker.
type ServiceSpec struct {
	ID   models.ServiceID
	Name string
	Load wire.LoadSpec

	// OutputBytes is the size of the output arena.
	OutputBytes int64

	// Env is the environment of the worker, nil for that of this process.
	Env []string

	// Inputs is the arena that holds the inputs of the service's queries. If
	// several executors run a worker for the service, all of them read the same
	// arena, so a query is bound to none of them before its batch starts. The
	// caller closes it after the service was removed from every executor, or
	// those were closed.
	Inputs *wire.InputArena

	// Moves is the arena through which batches move between the workers of the
	// service, nil if none do. It is shared and closed like Inputs.
	Moves *wire.InputArena

	// Refused, if set, is why the service starts out as failed permanently: it
	// gets no worker before Restart is called.
	Refused error
}

func (o Options) withDefaults() Options {
	o.LoadTimeout = cmp.Or(o.LoadTimeout, 10*time.Minute)
	o.SpanTimeout = cmp.Or(o.SpanTimeout, 30*time.Second)
	o.OverrunGrace = cmp.Or(o.OverrunGrace, 500*time.Millisecond)
	o.CloseGrace = cmp.Or(o.CloseGrace, 2*time.Second)
	o.Policy = o.Policy.WithDefaults(child.Policy{
		BackoffMin: 50 * time.Millisecond, BackoffMax: time.Second, HealthyAfter: 10 * time.Second,
		RestartLimit: 30, RestartWindow: time.Minute,
	})
	o.RetryMin, o.RetryMax = cmp.Or(o.RetryMin, 15*time.Second), cmp.Or(o.RetryMax, 10*time.Minute)
	if o.Inside != nil {
		o.Poll = 0 // both ends share the threads of one process, so an end that polls would slow down the other
	}
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	return o
}

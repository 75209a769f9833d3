package executor

import (
	"cmp"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Options of an executor. What is zero is set to its default.
type Options struct {
	Command  []string // argv of a worker
	Inside   Inside   // runs workers in place of Command, nil for processes
	Services []ServiceSpec

	// Outcomes, if it is set, is where outcomes are delivered, those of other devices of a
	// pool too, and Device says whose they are. Whoever made it closes it after all of
	// the executors. It has room for MaxOutcomes of each of them.
	Outcomes chan Outcome
	Device   int

	LoadTimeout time.Duration // from the start of a process until it is ready
	SpanTimeout time.Duration // a worker whose span takes longer is killed

	// OverrunGrace is how long a span that was abandoned may take to reach the end
	// of an operator before its worker is killed.
	OverrunGrace time.Duration

	// Affinity are the cores of this host that worker processes run on, nil for those of
	// this process. Executors that share no core do not slow each other down.
	Affinity []int

	// Cores is how many cores the spans of a round share, 0 where they do not compute on
	// those: see [wire.Run]. Workers must be ready for a single thread.
	Cores int

	// Poll is how long both ends of a worker process's socket look for the next
	// message before they sleep, 0 for not at all.
	Poll time.Duration

	// CloseGrace is how long a worker may take to exit by itself when the executor
	// closes or its service is removed.
	CloseGrace time.Duration

	// Policy decides when a lost worker is started again, and when its service is
	// given up.
	child.Policy

	// A service that was given up is tried again after RetryMin, and after twice as
	// long each further time, up to RetryMax, until its worker serves for
	// HealthyAfter again.
	RetryMin, RetryMax time.Duration

	// BeforeKill, if it is set, is called before a worker is killed that has not
	// answered all it was sent, a model to load included: whoever shares a device
	// with it may need to be protected from its end. Its rounds are over by then.
	// It must have a limit.
	BeforeKill func(id models.ServiceID, pid int)

	// Events is called with what happens to the workers, from several goroutines.
	// It must return soon.
	Events func(Event)
}

// ServiceSpec describes a service and its worker.
type ServiceSpec struct {
	ID          models.ServiceID
	Name        string
	Load        wire.LoadSpec
	OutputBytes int64    // size of the output arena
	Env         []string // the worker's, nil for that of this process

	// Inputs is where the inputs of the service's queries lie. Several executors may
	// have a worker of one service: all of them read the same memory, so that a query
	// is bound to none of them before its batch starts. Whoever made it closes it
	// once the service is removed from each executor, or that is closed.
	Inputs *wire.InputArena

	// Moves is the memory through which batches of the service go from the worker of one
	// executor to that of another, nil where none do. It is shared and closed as Inputs.
	Moves *wire.InputArena

	// Refused is why the service is given up from the beginning, without a worker
	// before Restart is called. It is nil for a service that is to start.
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
		o.Poll = 0 // both ends share the threads of one process, which polling keeps from each other
	}
	if o.Events == nil {
		o.Events = func(Event) {}
	}
	return o
}

// Package executor owns the workers: a process for each service, which runs its
// model's operators. It is what a daemon's scheduler goroutine hands rounds to:
// [Executor.Run] sends the spans of a round to the workers, and [Executor.Outcomes]
// delivers one [Outcome] for each round once all of its spans have ended, whatever
// happens to the workers. A worker that is lost is started again, later each time,
// and given up when that happens too often; each of that is an [Event]. All methods
// may be called at the same time.
//
// With [Options.Inside] the workers run on goroutines of this process instead, as
// those of an emulated device do. Everything else is the same.
//
// Tensors lie in memory shared with the worker: inputs in an arena that the
// daemon owns and that outlives the worker, so that a query can be run again, also
// by the worker that another executor has of the service, on another device;
// outputs in an arena that is new for every worker process. A paused batch goes on with the
// worker that another executor has of its service by [Move], through an arena that both
// have mapped: what is written once is read where it lies. A worker is never
// believed: an output or an answer that cannot be kills it.
//
// # Threads
//
// For each service a supervisor starts the worker, loads it, watches for spans
// that take too long, and buries it. For each process a waiter learns of its exit
// (beside the two of package child), a reader takes its answers and ends the
// spans, and a writer sends what the socket did not take at once. For each
// service that is removed one waits until its rounds are over. All of them end
// before Close returns.
//
// Services come and go while others run: [Executor.Add] and [Executor.Remove].
// Who runs spans reads a map of them that is never changed, only replaced.
//
// A worker is in a process group of its own: ^C on a terminal reaches the
// daemon only, and what a worker may have started dies with it. Signals that a
// service manager sends to every process are ignored by workers, since the
// daemon first answers what is in flight.
package executor

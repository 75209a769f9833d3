// Package executor owns the worker processes: one for each service, which runs
// the operators of the service's model. The scheduler goroutine of a daemon hands
// rounds to an [Executor]. [Executor.Run] sends the spans of a round to the
// workers. [Executor.Outcomes] delivers exactly one [Outcome] for each round once
// all of its spans have ended, even if workers crash. A lost worker is restarted
// after a growing back-off, and its service fails permanently when that happens
// too often; each of these steps is reported as an [Event]. All methods are safe
// for concurrent use.
//
// With [Options.Inside] the workers run on goroutines of this process instead of
// in processes, as those of an emulated device do. Nothing else differs.
//
// # Memory
//
// Tensors lie in memory shared with the worker. Inputs lie in an arena that the
// daemon owns and that outlives the worker. A query can therefore run again, even
// in the worker that another executor runs for the service on another device.
// Outputs lie in an arena that is created for each worker process. [Move] hands a
// paused batch to the service's worker in another executor through an arena that
// both workers have mapped: values are written once and read in place.
//
// The executor does not trust a worker. An output or an answer that is impossible
// gets the worker killed.
//
// # Threads
//
// For each service a supervisor starts the worker, loads the model, acts as the
// watchdog for spans that take too long, and cleans up after the worker. For each
// process a waiter learns of its exit (in addition to the two goroutines of
// package child), a reader receives the answers and ends the spans, and a writer
// sends what the socket did not take immediately. Each service that is being
// removed has a goroutine that waits until its rounds are over. All of them end
// before Close returns.
//
// Services may be added and removed while others run ([Executor.Add],
// [Executor.Remove]). The path that runs spans reads an immutable map of the
// services, which Add and Remove replace.
//
// Lock order: Executor.mu comes first. Of service.mu, gate.mu, round.mu and
// worker.mu, no two are held at the same time. conn.mu and the lock of an Inside
// come last.
//
// # Signals
//
// A worker is in a process group of its own. ^C on a terminal thus reaches only
// the daemon, and anything that a worker started dies with it. Workers ignore the
// signals that a service manager sends to every process, because the daemon first
// completes what is in flight.
package executor

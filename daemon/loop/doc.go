// Package loop is the scheduler goroutine of a daemon: it queues queries, decides by
// [overlap.Scheduler] what runs next on each device of the pool, sends rounds to the workers and
// records their outcomes. It counts, logs and remembers nothing itself: it emits events and
// publishes a status (packages observe and status). Package daemon makes a [Backend], starts,
// reloads and stops it; endpoints reach it as a query.Backend.
//
// # Parts
//
// Each part holds those it uses by name, and all of them lie below it in this list:
//
//	Backend    how the daemon and endpoints reach the goroutine, by its mailbox
//	loop       the goroutine: it alone knows all parts, and does what they want done
//	learner    measures on devices of one kind, as learning.Learner decides: a queue of jobs
//	moves      batches on their way to another device
//	calls      queries that were accepted and not answered
//	policies   which variant of a service answers
//	workers    what happens to the workers of services, and on which devices there are some
//	services   who joins, serves and leaves, and what requests find
//	env        devices, the scheduler's door, listeners, the clock
//
// A part that wants something done by one above it does not call it but says so: the scheduler
// has what is ready, services have stop and rebind for the learners, and a job has what follows.
//
// # Services and replicas
//
// A service comes and goes in one direction. A reload that changes its model lets another one join,
// which takes over its name and its counters:
//
//	joining ──► serving ──► retiring ──► leaving ──► gone
//	   └────── withdrawn ──────▲
//
// It has a replica on each of its devices, which is its worker there:
//
//	             model loaded        round sent
//	loading ──────────────► fresh ──────────────► ready ◄────────► overrun
//	                          ▲   ◄───────┐         │  a measured span runs on
//	             model loaded │           │         │
//	                      restarting ◄────┼─────────┴── worker lost
//	                                      │
//	any ── worker failed ──► failed ──────┘ model loaded
//
// A service answers as soon as one replica is fresh or ready. replica.go has the whole table.
//
// # Four ways through
//
// A query: submitter.Submit, mailbox, calls.arrive, Step, Ready, loop.dispatch.
//
// An outcome: loop.finish, service.ran, calls.ended, Observe, Step, Ready, calls.end.
//
// A reload: Backend.Admit, workers.open, workers.up, services.takeOver, loop.follow, learner.bind.
//
// A measurement: learner.measure, measurement.run, learner.finished, job.then, learning.Learner.
package loop

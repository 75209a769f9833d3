// Package overlap decides, each round, which spans run together. Its
// [Scheduler] is a value: events go in ([Scheduler.Arrive],
// [Scheduler.Finish], [Scheduler.Cancel], …), decisions come out
// ([Scheduler.Next] gives a [Round], [Scheduler.Answers] the queries that are
// over), and time is an argument. It has no goroutine, clock, log or I/O, and
// the same events always give the same decisions, so that a daemon, a
// simulator and a test drive the same code.
//
// All times are durations since one epoch that the caller chooses. A Scheduler
// is not safe for concurrent use: one goroutine owns it, and the [Predictor]
// with it. Slices it hands out are its own and are overwritten later, as each
// method says.
//
// # Order
//
// A policy gives every waiting query and every paused batch a key. A numbered
// priority goes before the key: 1 is the highest, and 0, the default, comes
// after all numbered ones. Equal keys are ordered by arrival, then by ID.
//
// # Drops
//
// A query is dropped when its deadline passes before it runs, and when it is
// about to run but the predictor says that it would end after its deadline. A
// query that could finish if it ran now is never dropped, and where the
// predictor knows nothing only the deadline counts. The queries of a batch
// that has started share its fate: it is dropped when none of them can be
// answered in time any more.
//
// # Answers
//
// Every accepted query gets exactly one [Answer], and only once no worker
// will touch its tensors again: a query that is cancelled while its batch
// runs, or while others in the batch still want it, is answered when the
// batch is over.
package overlap

// Package emulated runs services where there is no device and nothing is
// computed: a [Device] answers each span once the time has passed that a modelled
// device takes for the group that it runs in, drawn anew for each round, with
// outputs of zeros.
//
// It takes the place of worker processes in an executor ([executor.Options], field
// Inside): the worker's own loop, package segments/worker, runs on a goroutine
// for each service, with an engine of this package that sleeps. All else is as
// with processes: arenas, the protocol, leases, the life of a service. Only the
// daemon and tests make a Device, and what they serve from one they call emulated.
//
// Rounds run one after another, each from when it was sent or the one before it
// has ended. A group ends when the device says; one that it does not know, of
// one model twice or of too many spans, takes as long as its spans one after
// another. A span of a group ends earlier in the proportion that it would if
// each of them ran alone. A span that is stopped ends at the boundary of the
// operator that would be running if all of its operators took as long; the others go
// on as if it had not been, and rounds that were sent begin when they would have.
//
// # Threads
//
// A device has no goroutine: all that changes lies under its one lock, which is
// held for a few microseconds, and each engine sleeps on the goroutine of its
// worker until its own span ends or something changes. No thread sleeps for it:
// it waits for a timer of the kernel in Go's poller, a little early, and looks at
// the clock for the rest, at most pollTime.
package emulated

// Package emulated runs services on an emulated device, on which nothing is
// computed. A [Device] answers each span after the time that a modelled device
// takes for the span's group, with outputs of zeros. That time is drawn from the
// model, [Times], for each round.
//
// A Device takes the place of the worker processes of an executor (the field
// Inside of [executor.Options]). Each service has a goroutine that runs the
// worker's own loop, package segments/worker, on an engine of this package that
// sleeps. Everything else works as with processes: arenas, the protocol, leases,
// and restarts. Only the daemon and tests create a Device, and the results of a
// service on it are always labelled as emulated.
//
// # Timing
//
// Rounds run one after another. A round begins when it was sent or when the round
// before it has ended, whichever is later. A group takes the time that Times draws.
// A group that Times does not cover, because it has one model twice or too many
// spans, takes the sum of its spans' times. The longest span of a group takes the
// whole time; each other ends earlier, in proportion to their isolated latencies.
//
// A stopped span ends at the next operator boundary, as if all of its operators
// took equally long. Its early end does not speed up the other spans of the round,
// or rounds that were already sent.
//
// If workers have several units, rounds of one span on a share of them run at once,
// each for its own time.
//
// # Threads
//
// A device has no goroutine. One lock guards all of its state and is held for a few
// microseconds. Each engine sleeps on its worker's goroutine until its own span ends
// or something changes. Sleeping occupies no thread: the engine waits for a kernel
// timer in Go's poller, which fires slightly early, and then polls the clock for at
// most pollTime.
package emulated

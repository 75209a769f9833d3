// Package emulated stands in for [executor.Executor] where there is no device
// and nothing is computed: an [Executor] answers a round once the time has
// passed that a modelled device takes for its group, drawn anew for each round,
// with outputs of zeros. It keeps what an executor promises: one outcome for
// each round, queries that lie in an input arena, outputs that are leased, leaks
// that Close reports. There are no processes, so no worker is ever lost.
//
// Rounds run one after another, each from when it was sent or the one before it
// has ended. A group ends when the device says; one that it does not know, of
// one model twice or of too many spans, takes as long as its spans one after
// another. A span of a group ends earlier in the proportion that it would if
// each of them ran alone. A span that is stopped ends at the boundary of the
// operator that would be running, going by what the operators before it take
// alone; the others go on as if it had not been.
//
// # Threads
//
// One goroutine, the device, sleeps until the round that runs ends, and
// delivers its outcome. It owns nothing: all that changes lies under one lock,
// which is held for a few microseconds. The device wakes a little early and
// looks at the clock for the rest, at most pollTime. One for each service tells
// when it is ready and when it is not any more; another one waits, while a
// service is removed, until nothing of it is in use.
package emulated

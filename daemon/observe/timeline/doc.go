// Package timeline remembers the last rounds of a daemon and why they were
// chosen. A [Ring] is fed by the goroutine that owns the scheduler and read by
// those that answer people; [Page] is what they are told, and what the commands
// that look at a running daemon read.
//
// What is remembered belongs to the name of a service, whoever has its ID: see
// [Ring.Observe].
//
// Feeding copies into memory that is used again, so that it costs well under a
// microsecond and allocates nothing once the ring has been round.
package timeline

// Package sim serves made-up queries in virtual time: the scheduler and the
// predictor are those of the daemon, the device is a model of one, and nothing
// waits. [Run] takes a [Scenario] and returns a [Result]; its Observer sees every
// round and answer. The same scenario gives the same result, byte for byte. The
// commands simulate and reproduce call it, and tests that compare it with a daemon.
//
// # Randomness
//
// Everything random comes from the seed of the scenario, and every purpose has
// a stream of its own: when queries come, which service they are for, how large
// they are, who leaves, when workers die, how long rounds take. So another
// policy meets the same queries, and another mix of services the same arrival
// times.
//
// # Time
//
// What happens at one instant is taken in before anything is decided, as the
// daemon does: first the rounds that end, then workers, then clients that
// leave, then arrivals. After a round the predictor learns from it as it does
// in the daemon.
//
// # Counting
//
// A query violates its target if it is answered late, dropped, refused or
// failed. One whose client left before its deadline does not; one whose client
// left later does. The run lasts from time 0 to the last answer or arrival.
// Throughput is queries answered, late ones too, over that time, as the authors
// of Abacus count it (section 7.3); goodput, those in time.
//
// A [Scenario] belongs to one run at a time, and so does a [Device].
package sim

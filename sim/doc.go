// Package sim serves made-up queries in virtual time: the scheduler and the
// predictor are those of the daemon, the device is a model of one, and nothing
// waits. [Run] takes a [Scenario] and returns a [Result]; its Observer sees every
// round and answer. A scenario may bring another [Scheduler], to compare policies that the
// daemon does not have. The same scenario gives the same result, byte for byte. The
// commands simulate and reproduce call it, and tests that compare it with a daemon.
//
// # Randomness
//
// Everything random is derived from the seed of the scenario. Each purpose has a stream of
// its own: arrival times, services, sizes, clients that leave, worker deaths, and the
// duration of rounds, among others. Another policy therefore gets the same queries, and
// another mix of services gets the same arrival times.
//
// # Time
//
// What happens at one instant is taken in before anything is decided, as the
// daemon does: first the rounds that end, then workers, then clients that
// leave, then arrivals. A scheduler gives its answers after each event, and decides
// after all of them. After a round the predictor learns from it as it does
// in the daemon.
//
// # Counting
//
// A query violates its target if it is answered late, dropped, rejected or failed. A query
// that is cancelled because its client leaves counts only if the client leaves after the
// deadline. The run lasts from time 0 to the last answer or arrival. Throughput is the number
// of answered queries, including late ones, over that time, as in the paper on Abacus
// (section 7.3). Goodput counts only the queries that are answered in time.
//
// A [Scenario] belongs to one run at a time, and so does a [Device].
package sim

// Package sim serves synthetic queries in virtual time. The scheduler and the predictor are
// those of the daemon, the device is a model, and nothing sleeps. [Run] takes a [Scenario]
// and returns a [Result]. The scenario's Observer sees every round and every answer. A
// scenario may bring another [Scheduler], for policies that the daemon does not have. The
// same scenario always gives the same result, byte for byte. The commands simulate and
// reproduce use the package, and so do tests that compare it with a daemon.
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
// As in the daemon, all events of one instant are processed before anything is decided.
// Their order is: rounds that end; moves and overruns that end; workers that return or die;
// clients that leave; changes of pods; arrivals. A scheduler gives its answers after each
// event. After a round the predictor learns from it as it does in the daemon.
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

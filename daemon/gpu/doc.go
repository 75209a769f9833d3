// Package gpu takes a GPU into use for a daemon and returns it to its previous state.
// [Choose] finds a [GPU] and plans its use without changing anything; it may decide for the
// CPU. GPU.Take divides the GPU by MIG as configured and starts MPS. GPU.Give undoes that
// in reverse order.
//
// A [Part] is what a group of services runs on: the whole GPU or one MIG instance.
// Part.Sample and Part.Watch monitor it in goroutines of the daemon. A [Ledger] accounts
// for its memory.
//
// The MIG instances that a daemon creates are recorded in the state folder before and after
// every step, so that the next daemon can remove them if this one crashes. The goroutines
// of an MPS control daemon end with Give. Only package daemon takes GPUs into use; commands
// only ask where files are.
package gpu

// Package gpu takes a GPU into use for a daemon and gives it back as it was. A
// [GPU] is found and planned for by [Choose], which changes nothing and may decide
// for the CPU; Take divides it as the configuration wants it and runs MPS, and Give
// undoes that in the opposite order. A [Part] is what one group of
// services runs on: the whole GPU or one MIG instance. It is watched by Part.Sample
// and Part.Watch, for which the daemon has goroutines, and a [Ledger] says who has
// how much of its memory.
//
// What was made of instances is recorded in the state folder before and after
// every step, so that a daemon that crashed leaves nothing for good: the next
// one finds the record. The goroutines of a control daemon of MPS end with Give.
// Package daemon uses GPUs by it; commands only ask where files lie.
package gpu

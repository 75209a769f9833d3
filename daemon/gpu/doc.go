// Package gpu takes a GPU into use for a daemon and gives it back as it was. A
// [GPU] is found and planned for by [Look], which changes nothing; Take divides
// it as the configuration says and runs MPS, and Give undoes that in the
// opposite order. A [Part] is what one group of services runs on: the whole GPU
// or one MIG instance.
//
// What was made of instances is recorded in the state folder before and after
// every step, so that a daemon that crashed leaves nothing for good: the next
// one finds the record. Nothing here starts a goroutine of its own; those of a
// control daemon of MPS end with Give.
package gpu

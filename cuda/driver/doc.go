// Package driver calls the CUDA driver, libcuda.so.1, which is loaded at run
// time: building needs neither it nor its header.
//
// A [Library] is the loaded driver, a [Context] this process's use of one GPU or
// MIG instance, a [Stream] a queue of its work, and an [Event] a mark in that queue.
// Memory on the GPU is an address that Go cannot read. A [Result] is what the driver
// returns when a call fails; it needs no library to be read. The engine calls it in
// workers on a GPU, and the GPU tests.
//
// The driver keeps one current context for each OS thread, and a goroutine may
// wake up on another one. So every call makes its context current first, in the
// same crossing into C: no caller has to lock its thread.
//
// All of it is memory that the garbage collector does not see: close what was
// opened, the Context last. Context.Release reports what was forgotten.
package driver

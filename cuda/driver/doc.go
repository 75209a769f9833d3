// Package driver calls the CUDA driver, libcuda.so.1. The library is loaded at run time;
// building needs neither the library nor its header.
//
// A [Library] is the loaded driver. A [Context] is this process's use of one GPU or MIG
// instance, a [Stream] a queue of work for it, and an [Event] a mark in that queue. GPU
// memory is an address that Go cannot read. A [Result] is the error code of a failed
// call; its text needs no library. The engine uses the package in workers on a GPU, and
// so do the GPU tests.
//
// The driver keeps a current context for each OS thread, and a goroutine may move to
// another thread at any time. Every call therefore makes its context current first, in
// the same crossing into C. Callers need not lock their thread.
//
// The garbage collector does not see any of these objects. Close everything that was
// opened, the Context last; Context.Release reports what was forgotten.
package driver

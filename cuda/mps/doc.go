// Package mps runs and watches one control daemon of NVIDIA's Multi-Process
// Service for one GPU or MIG instance, so that kernels of several workers run
// at the same time.
//
// [Start] runs a daemon of our own and starts it again when it dies,
// [Existing] attaches to one that somebody else runs and never stops it, and
// [OffEnv] keeps a worker away from any. A [Control] gives workers their
// environment and sends each [Event] that concerns them on one channel. A
// [Console] sends single commands, by the documented way: lines on the
// standard input of nvidia-cuda-mps-control.
//
// Caveats. A server that dies takes all its clients with it, and one that
// faults wants all its clients gone before it serves again: whoever owns the
// workers restarts them together. A worker whose control daemon is missing
// runs without MPS and does not notice, so whoever owns the workers starts none
// then. Servers serve one user at a time; clients of another wait.
// Several commands at a time make the control program fail now and then, so a
// console sends one after the other, and one failed command means nothing yet.
//
// # Threads
//
// A control has one goroutine, the supervisor, that owns the daemon's life and
// emits the events. For the daemon's process one goroutine starts and reaps
// it, on a thread of its own: the kernel kills the daemon when the thread that
// started it ends. For each server one goroutine waits for its end, and one
// asks the console every Poll. All of them end before Stop returns.
package mps

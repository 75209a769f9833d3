// Package mps runs and supervises a control daemon of NVIDIA's Multi-Process Service for
// one GPU or MIG instance, so that kernels of several workers run concurrently.
//
// A [Control] is one control daemon. [Start] runs a daemon of our own and restarts it when
// it dies. [Existing] attaches to a daemon that somebody else runs, and never stops it.
// [OffEnv] is the environment of a worker that uses no MPS. A Control provides the
// environment of its workers, and sends each [Event] that concerns them on one channel.
// A [console] sends single commands in the documented way: as lines on the standard input
// of nvidia-cuda-mps-control.
//
// # Caveats
//
//   - A server that dies ends all of its clients. A server with a fault accepts no client
//     until all of its clients have exited. Code that owns the workers must therefore
//     restart them together.
//   - A worker without a control daemon silently runs without MPS, so no worker may be
//     started while the daemon is down.
//   - A server serves one user at a time; clients of other users wait.
//   - Concurrent commands make the control program fail occasionally. A console therefore
//     sends one at a time, and a single failed command means nothing.
//
// # Threads
//
// A Control has one goroutine, the supervisor, that owns the daemon's life and emits the
// events. A goroutine of package child starts and reaps the daemon's process on a thread
// of its own, because the kernel kills the daemon when the thread that started it ends.
// One goroutine for each server waits for its end, and one queries the console every
// Poll. All of them end before Stop returns.
package mps

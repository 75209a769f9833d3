// Package worker is the main loop of a worker. [Serve] loads the model that the daemon
// names, and runs the spans that the daemon sends on an [Engine], one after another, or
// several at once, each on a share of the device's units.
//
// All state belongs to the call of Serve, so a process can serve many engines at a
// time, each on its own socket. The command overlapd worker serves one, with package
// segments as the engine. A daemon on an emulated device serves all of its services
// from goroutines. [Run] turns a process into a worker that does nothing else.
//
// The daemon trusts nothing that a worker sends, but a worker checks what it receives
// too: operator ranges, and tensors that must lie inside the shared memory.
package worker

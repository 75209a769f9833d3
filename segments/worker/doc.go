// Package worker is the loop of a worker: it loads the model that the daemon
// names and runs the spans that the daemon sends, one after the other, on an
// [Engine]. It keeps no state outside of the call of [Serve], so a process may
// serve many engines at a time, each over a socket of its own: overlapd worker
// serves one, with package segments as the engine, and a daemon on an emulated
// device serves all of its services from goroutines.
//
// [Run] is for a process that is nothing but a worker.
package worker

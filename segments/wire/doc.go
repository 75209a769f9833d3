// Package wire is what the daemon and a worker share: the protocol that they
// speak over a socket and the memory that tensors lie in, with both ends of each.
// The daemon's ends are [InputArena] and [Outputs], the worker's are [MapInputs]
// and [WorkerOutputs]; messages are framed by [AppendFrame] and [FrameReader].
// Packages executor and daemon import it, and so do the loop of a worker and its
// engine. It needs no cgo and runs nothing.
//
// Nothing that a worker says is believed: decoders bound every field, and an
// output is checked before it is read.
package wire

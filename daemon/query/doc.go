// Package query carries an inference query from the codec of a protocol to the scheduler
// and back, in the same way for every protocol.
//
// A codec (daemon/http, daemon/rpc) decodes a request into a [Call]. [Server.Answer] checks
// the call against the [Signature] of its [Service], copies its tensors into the shared
// memory of a [Backend], and waits for the single answer. The scheduler's loop
// (daemon/loop) implements Backend and publishes its services in a [Registry]. [Budget] and
// [Places] limit memory and connections over all protocols together.
//
// # Where the protocol leaves a choice
//
//   - A request that names no version of a model gets the highest.
//   - A dimension of a shape is at least 1: a tensor without elements is rejected.
//   - Unknown parameters are ignored. Parameters that Triton reserves (sequence_*,
//     triton_*, headers) and those that ask for unsupported features
//     (classification, shared memory) are rejected.
//   - A query is cancelled when its client disconnects.
//   - A BYTES tensor is stored as in the binary extension: each element is a
//     little-endian length of four bytes, followed by that many bytes.
package query

// Package rpc serves the Open Inference Protocol over gRPC. Its [Server]
// reads what clients send, turns each request into a [Query] on a [Host], and
// writes what the host answers; it decides nothing. Health checks
// (grpc.health.v1) and reflection are served beside it.
//
// # Contents of tensors
//
// A request brings its tensors all as raw bytes or all as typed contents, and
// is answered in the form it came in. FP16 and BF16 have no typed form: they
// are sent raw, and an answer that holds one is raw in whole. The request
// parameter binary_data_output overrides the form of the answer.
//
// # Limits
//
// A message is counted before it is decoded: how many tensors, dimensions and
// parameters it has, so that few bytes cannot become many objects. What has
// come of a request, what is made of it, and what a call may hold besides are
// accounted before they are taken, and held to [Limits.MemoryBytes] together;
// answers that clients have not taken yet count for it, too.
// Connections, calls of a connection and queries of a stream have limits of their
// own.
package rpc

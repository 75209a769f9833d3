// Package inference is the Open Inference Protocol in Go: messages, and the
// service GRPCInferenceService for servers and clients. It is generated from
// inference.proto, whose head says how.
package inference

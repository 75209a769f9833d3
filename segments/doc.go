// Package segments lives inside a worker. It has a model optimized by ONNX
// Runtime, cuts the optimized graph into segments (one session for each
// operator), runs spans of operators and keeps the intermediates of the
// batches that are not finished yet. A [CutModel] does all of that for one
// service. The package also holds both ends of the protocol that the daemon
// and a worker speak, and the memory they share.
//
// A model runs on the CPU or, through a [Device], on a GPU: its intermediates
// then lie in the GPU's memory, and its work is queued on one stream.
//
// A CutModel belongs to one goroutine. The four conditions that make cutting
// at every node cheap are kept here: one thread pool for all sessions of the
// process, one arena for all sessions, intermediates that reuse each other's
// memory by liveness, and residual inputs that die at their node and so share
// its output's memory.
package segments

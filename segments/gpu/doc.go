// Package gpu is a GPU as package segments needs it. A [Device] has memory, and one stream
// in which copies and segments are queued. [Choose] finds out by measurement into how many
// segments a model is cut for a GPU.
//
// The package knows neither models nor batches. It receives addresses and bytes, and it is
// told when a segment was launched. It decides how far the host runs ahead of the device,
// which copies are staged in pinned memory, and what an error of ONNX Runtime means for the
// worker. A Device belongs to one goroutine.
package gpu

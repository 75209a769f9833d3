// Package segments is the engine of a worker. It has ONNX Runtime optimize a
// model, cuts the optimized graph into segments (one session for each operator),
// runs spans of operators and keeps the intermediates of the batches that are not
// finished yet. [OpenModel] opens a [CutModel], which does all of that for one
// model; [LoadONNX] wraps one as the engine that package segments/worker serves. The
// commands that compare the engine with the whole model open one themselves. The
// daemon's process never runs it: the daemon knows package segments/wire only.
//
// A model runs on the CPU or, through a [Device], on a GPU: its intermediates
// then lie in the GPU's memory, and its work is queued on one stream.
//
// A paused batch may go on with another engine of the same model, which knows it by the
// values that are alive where it stands ([CutModel.Export], [CutModel.Import]).
//
// A CutModel belongs to one goroutine. It consists of what was loaded, which does
// not change any more, of a pool with the memory of its batches, and of a runner for
// the place where it runs. The four conditions that make cutting at every node cheap
// are kept here: one thread pool for all sessions of the process, one arena for all
// sessions, intermediates that reuse each other's memory by liveness, and residual
// inputs that die at their node and so share its output's memory.
package segments

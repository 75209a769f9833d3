// Package segments is the engine of a worker. It lets ONNX Runtime optimize a model, cuts
// the optimized graph into segments with one session each, runs operator ranges of batches,
// and keeps the intermediates of batches that are not finished. By default each segment is
// one operator.
//
// [OpenModel] returns a [CutModel], which does all of that for one model. [LoadONNX] wraps a
// CutModel as the engine that package segments/worker serves. Commands that compare the
// engine with the whole model call OpenModel themselves. The daemon's process never runs the
// engine; it communicates with workers through package segments/wire.
//
// A model runs on the CPU or, through package segments/gpu, on a GPU. On a GPU its
// intermediates lie in the GPU's memory, and its work is queued on one stream.
//
// A paused batch may continue in another engine of the same model. The two engines agree on
// the values that are live at the operator where the batch paused; see [CutModel.Export]
// and [CutModel.Import].
//
// A CutModel may run spans of several batches at once, each on a share of the cores. It
// holds its lock except while operators run. It consists of three parts: the loaded model,
// which does not change after loading; a pool, which owns the memory of its batches; and a
// runner for the CPU or the GPU. A loader makes the first, and a worker's service runs a
// warmer before it serves. The package maintains four conditions that make it cheap to cut
// at every node: all sessions of the process share one thread pool, all sessions share one
// arena, intermediates with disjoint lifetimes share memory, and a residual input whose
// last use is its node shares the memory of the node's output.
package segments

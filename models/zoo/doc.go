// Package zoo builds the models that overlapd ships: ONNX files with the topology of
// well-known networks and seeded random weights. An [Entry] describes one of them, and [Build]
// puts its file in a folder. The daemon builds the models that its configuration names, the
// models command those it is asked for, and tests the ones they run.
//
// Because the weights are random, the outputs have no meaning. The files are for measuring
// latency and memory, and for checking that two ways to run a model give equal outputs. The
// weights are scaled so that activations stay finite even in 16 bits, and so that outputs
// depend on the inputs.
//
// The same name and seed give the same bytes on every machine. Files are written as a stream,
// with at most one chunk of weights in memory at a time.
package zoo

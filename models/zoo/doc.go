// Package zoo builds the models that overlapd ships: ONNX files with the
// topology of well-known networks and seeded weights. An [Entry] describes
// one of them, [Build] puts its file in a folder. The daemon builds what its
// configuration names, the models command whatever it is asked for, and tests what
// they run.
//
// The weights are random, so the outputs mean nothing. They are scaled such
// that activations stay finite in 16 bits too and outputs vary with the
// inputs: latency, memory and the equality of two ways to run a model are what
// these files are for.
//
// The same name and seed give the same bytes on every machine. A file is
// written as a stream; no more than one chunk of weights is in memory at a
// time.
package zoo

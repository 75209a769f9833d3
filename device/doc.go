// Package device models the device that operator groups run on, from
// measurements: it answers for groups that were never run.
//
// Package training/fit makes a [Profile], which is stored as a file. [NewModel]
// makes it ready: [Model.Latency] is the median of the runs of a group,
// [Model.Sample] draws one run with the spread that was measured, and
// [Model.OperatorTimes] is what a profile of the device would measure of each
// operator alone. The simulator and the emulated device of the daemon use it, each
// from one goroutine. [ReadLinear] makes a profile of published numbers instead: of a
// device that runs one batch at a time, which takes time linear in its size.
//
// A device keeps two promises, whatever it was made of. A group is no faster
// than its longest span alone. And operators added to a span, or a span added
// to a group, never make a group faster.
//
// It is not what a scheduler predicts with: a scheduler that asked it would know
// its device better than any can. That is package predictor.
package device

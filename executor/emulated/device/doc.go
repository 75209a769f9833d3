// Package device models the device that operator groups run on. It is fitted to measurements and
// estimates the latency of groups that were never run.
//
// Package training/fit makes a [Profile], which is stored in a file. [ReadLinear] makes a profile
// from published numbers instead: of a device that runs one batch at a time, in a time linear in
// the batch size. [NewModel] prepares a profile for use. [Model.Latency] returns the median latency
// of a group, [Model.Sample] draws one run with the measured spread, and [Model.OperatorTimes]
// returns what profiling on the device would measure for each operator. The simulator and the
// daemon's emulated device use a Model, each from one goroutine.
//
// Every device guarantees two things, whatever the data: a group is never faster than its longest
// span alone, and adding operators to a span or a span to a group never makes the group faster.
//
// A scheduler must not predict with this package, because it would know its device perfectly.
// Schedulers use package predictor.
package device

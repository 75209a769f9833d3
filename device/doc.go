// Package device is a device made of measurements: it tells how long operator
// groups take that were never run.
//
// A [Profile] is what was learned of a device, as it is stored. A [Model] is a
// profile ready to be asked: [Model.Latency] is the middle of the runs of a
// group, [Model.Sample] one run of it, with the spread that was measured.
//
// A device keeps two promises, whatever it was made of. A group is no faster
// than its longest span alone. And operators added to a span, or a span added
// to a group, never make a group faster.
//
// It stands for the device that it was measured on, in simulations and for a
// daemon without one. It is not what a scheduler predicts with: a scheduler
// that asked it would know its device better than any can.
package device

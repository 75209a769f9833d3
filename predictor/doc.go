// Package predictor tells how long an operator group takes.
//
// [Solo] is the table of solo times: what each operator of each service takes
// alone on the device, by batch size and sequence length. The sum of the solo
// times of a group's spans is the conservative estimate of its latency: that
// of running its spans one after another.
//
// The table is filled from a profile with [Solo.SetOperators] and kept up to
// date by [Solo.Observe] while serving. A Solo is not safe for concurrent use;
// it belongs to the goroutine that owns the scheduler.
package predictor

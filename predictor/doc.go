// Package predictor estimates how long an operator group takes.
//
// The daemon and the simulator make a [Predictor] of a table of solo times
// ([NewSolo], [New]) and ask it for every decision. The latency of one span is its
// solo time. That of several comes from the network of a [File] where it was
// trained on such groups ([Predictor.Use]), corrected by what was measured lately;
// otherwise it is the sum of their solo times, as if they ran one after another, so
// that nothing is overlapped on a guess. Every estimate has a bound that 99 of 100
// runs keep.
//
// Training writes a File: its [Features], whose Encoder is the one feature function
// that training and serving share (Abacus, section 5.3, and a richer set), and the
// layers of a [Network]. Built with GOEXPERIMENT=simd, networks use AVX2 or AVX-512
// where the processor has them; the last digits of predictions then differ between
// the builds, and between processors. [CostGrid], [Together] and [ModelOrder] are
// shared with package device, whose networks have other features.
//
// Two things are learned while serving. [Solo.Observe] moves solo times, and
// [Predictor.Observe] the calibration: how fast the device is lately, and for each
// set of services by how much measurements differ from predictions. Both have
// snapshots for the state file. Services come and go by [Solo.Reset] and
// [Predictor.Drop].
//
// An estimate that only prevents work must expire: what seems too slow does not run, and
// nothing would correct it. A batch size that has not run while smaller ones did is believed
// for 4 s, and so is the cost of cutting a model while nothing cuts it; a set of services for
// a minute ([Predictor.Observe]).
//
// Nothing here is safe for concurrent use but a CostGrid and an encoding function: a
// Predictor belongs to the goroutine that owns the scheduler. Predict and Observe
// do not allocate. Only [ReadFile] and [File.WriteFile] touch files.
package predictor

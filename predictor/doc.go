// Package predictor estimates the latency of operator groups.
//
// A [Predictor] combines a table of isolated latencies ([NewSolo], [New]) with an optional
// network from a [File] ([Predictor.Use]). The daemon and the simulator ask it for every
// decision. The estimate for one span is its isolated latency. For several spans it comes from
// the network if that was trained on such groups, corrected by recent measurements. Otherwise it
// is the sum of the isolated latencies, as if the spans ran one after another, so that nothing
// is overlapped on a guess. Every estimate has a bound, its p99.
//
// Training writes a File. It holds the layers of a [Network] and its [Features], whose Encoder is
// the one feature function that training and serving share (Abacus, section 5.3, and a richer
// set). Built with GOEXPERIMENT=simd, networks use AVX2 or AVX-512 where available. The last
// digits of a prediction then depend on the build and the processor. [CostGrid], [Together] and
// [ModelOrder] are shared with package device, whose networks have different features.
//
// Two parts learn while serving. [Solo.Observe] updates isolated latencies. [Predictor.Observe]
// updates the calibration: the current speed of the device and, for each set of services, the
// ratio of measured to predicted latency. Both have snapshots for the state file. [Solo.Reset]
// adds a service or changes its model, and [Predictor.Drop] removes one.
//
// An estimate that only prevents work must expire. A group that seems too slow does not run, so
// no measurement would ever correct its estimate. The time of a batch size that does not run
// while smaller ones do expires after 4 s, and so does the cost of cutting a model that nothing
// cuts. What is known about a set of services expires after a minute ([Predictor.Observe]).
//
// Only a CostGrid and an encoding function are safe for concurrent use. A Predictor belongs to
// the goroutine that owns the scheduler. Predict and Observe do not allocate. Only [ReadFile] and
// [File.WriteFile] access files.
package predictor

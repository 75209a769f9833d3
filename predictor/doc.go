// Package predictor tells how long an operator group takes.
//
// A [Predictor] is what a scheduler asks. One span takes its solo time, from
// the table [Solo]. Several take what a [Model] says, corrected by what was
// measured lately; where there is no model, or it was not trained on such
// groups, they take the conservative sum of their solo times, that of running
// them one after another. Every estimate has a bound, which 99 of 100 runs
// stay within.
//
// A Model is a [File] ready to serve: an [Encoder], the one feature function
// that training and serving share, and a [Network]. Built with
// GOEXPERIMENT=simd, networks use AVX2 or AVX-512 where the processor has
// them. The last digits of predictions differ between the builds, and between
// processors.
//
// What is learned while serving goes into the table of solo times, kept up to
// date by [Solo.Observe], and into the calibration: how fast the device is
// lately, and for each set of services by how much measurements differ from
// predictions. Both have snapshots.
//
// Services come and go by [Solo.Reset] and [Predictor.Drop]. A network answers
// for those that it was bound to by [Predictor.Use], as long as they keep their
// models; groups with others fall back to the sum.
//
// None of these is safe for concurrent use but an Encoder. They belong to the
// goroutine that owns the scheduler. Only [ReadFile] and [File.WriteFile]
// touch files.
package predictor

// Package gpu checks, as Go tests, what overlapd is worth on a GPU: whether outputs
// are right, what cutting costs, what running services together gains, how well that
// can be predicted, and what the policies make of it.
//
// Each step of TestGPU measures one of these and logs every figure as a line of JSON.
// TestGPU then compares the figures with their limits, and with what
// docs/gpu-assumptions.md takes for granted. Models run in processes of the
// overlapd binary: probes, workers and daemons.
//
// With -device cuda the tests check a GPU; make gpu-bundle compiles them for that.
// With -device cpu every step runs on the CPU with small models, and without -device
// the same does so in seconds: both exercise the check and say nothing about a GPU.
package gpu

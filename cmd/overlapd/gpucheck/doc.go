// Package gpucheck finds out, in a few minutes, what overlapd is worth on a
// device: whether outputs are right, what cutting costs, what running together
// gains, how well that can be predicted, and what the policies make of it.
//
// [Run] goes through a list of steps, each with a budget of time, and returns a
// [Report]. A step that fails or runs out of time is told of and the next one
// goes on; the report is written after every step, so that a machine that goes
// away leaves what was measured until then. Models run in processes of their own:
// probes, workers and daemons, all of the same binary.
//
// On the CPU it is a rehearsal: every step runs, and nothing that it measures says
// anything about a GPU. The report and its pages say so.
package gpucheck

// Package hostcheck finds out what a host with NVIDIA GPUs has, what of it does not fit
// together or is missing, and what to do about that. It is behind overlapd check.
//
// [Look] asks NVML, the file tree, MPS and, through a function that it is given,
// a process that runs a small model. It returns a [Report] of [Finding] values,
// each by one of the rules in [Table]. It changes nothing.
package hostcheck

// Package cuda reads, through NVML, what NVIDIA GPUs a host has and how they do, and
// changes how they are partitioned. The daemon's GPU code, overlapd check and the GPU
// tests use it; packages mig, mps and driver build on it.
//
// A [Host] is the loaded library, [Facts] what does not change from second to
// second (a [Device] each, with its MIG [Instance] list), and a [Sample] what
// does. Errors are what NVML answered, in words and with a remedy. [Versions]
// compares the driver's version with that of the libraries.
//
// The library is loaded at run time: building needs neither driver nor GPU, and
// [Open] on a host without them returns [ErrNoDriver]. A Host may be used by
// many goroutines. A call that the kernel driver does not answer does not
// return, so whoever must not hang samples from a goroutine of its own.
package cuda

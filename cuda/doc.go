// Package cuda reads the NVIDIA GPUs of a host and their state through NVML, and changes
// how they are partitioned. The daemon's GPU code, overlapd check and the GPU tests use
// it; packages mig, mps and driver complement it.
//
// A [Host] is the loaded library. [Facts] is what rarely changes, with one [Device] for
// each GPU and one [Instance] for each of its MIG instances. A [Sample] is what changes
// from second to second. Errors explain NVML's return code and name a remedy. [Versions]
// checks the driver's version against that of the libraries.
//
// The library is loaded at run time; building needs neither a driver nor a GPU. On a host
// without them, [Open] returns [ErrNoDriver]. A Host is safe for concurrent use. A call
// into a kernel driver that hangs does not return, so code that must not hang takes its
// samples on a separate goroutine.
package cuda

// Package cuda tells what NVIDIA GPUs a host has and changes how they are
// partitioned, through NVML.
//
// A [Host] is the loaded library, [Facts] what does not change from second to
// second (a [Device] each, with its MIG [Instance] list), and a [Sample] what
// does. A [Fault] is what NVML answered, in words and with a remedy. [Versions]
// says whether driver and libraries fit together.
//
// The library is loaded at run time: building needs neither driver nor GPU, and
// [Open] on a host without them returns [ErrNoDriver]. A Host may be used by
// many goroutines. A call that the kernel driver does not answer does not
// return, so whoever must not hang samples from a goroutine of its own.
package cuda

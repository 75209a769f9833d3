package fakedriver

// Words of the page that is shared with testdata/fakecuda.c: first those that the
// test sets, then those that the driver counts.
const (
	MemoryLimit = 0 // bytes of device memory
	Identity    = 1 // 1: device addresses can be used by the host as well
	Devices     = 2 // how many there are
	Version     = 3 // as cuDriverGetVersion gives it
	MemoryTaken = 4 // bytes that others hold

	Bytes       = 16 // of device memory that are held
	Allocations = 17
	Streams     = 18 // that are open, as the next ones
	Events      = 19
	Pins        = 20
	Contexts    = 21
	Pending     = 22 // copies that are queued
	CopiesIn    = 23
	CopiesOut   = 24
	Syncs       = 26 // of streams and events
	Faults      = 27 // uses of what is not there, and calls without a context
	Sticky      = 29 // the result that every call gives from now on, 0 if none
	Flags       = 30 // of the context

	failAfter = 128 // by call: fail at the n-th call from now, 0 for never
	failWith  = 192 // by call: the result
	words     = 512
)

// Calls of the driver, as the fake numbers them.
const (
	CallInit          = 0
	CallCount         = 2
	CallUUID          = 5
	CallSetFlags      = 8
	CallRetain        = 9
	CallRelease       = 10
	CallStreamCreate  = 13
	CallStreamDestroy = 14
	CallStreamSync    = 15
	CallEventCreate   = 16
	CallEventDestroy  = 17
	CallEventRecord   = 18
	CallEventSync     = 20
	CallAlloc         = 22
	CallFree          = 23
	CallInfo          = 24
	CallCopyIn        = 25
	CallCopyOut       = 26
	CallPin           = 28
	CallUnpin         = 29
)

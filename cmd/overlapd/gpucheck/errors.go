package gpucheck

import "errors"

// ErrOptions is returned by Run when the options make no sense. The error names
// every fault.
var ErrOptions = errors.New("gpucheck: options")

var (
	// ErrDevice is the reason of a step that needs a device which this build,
	// or this machine, does not have.
	ErrDevice = errors.New("gpucheck: device")

	// ErrWorker is the reason of a step in which a worker was lost or refused
	// its work.
	ErrWorker = errors.New("gpucheck: worker")

	// ErrDaemon is the reason of a step in which a daemon did not start or
	// ended by itself.
	ErrDaemon = errors.New("gpucheck: daemon")

	// ErrNothing is the reason of a step that needs what an earlier one
	// measures, if that one did not.
	ErrNothing = errors.New("gpucheck: not measured")
)

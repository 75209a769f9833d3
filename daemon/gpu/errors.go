package gpu

import "errors"

var (
	// ErrDivided is returned when a GPU is to be used as a whole and is divided
	// by MIG.
	ErrDivided = errors.New("the GPU is divided by MIG")

	// ErrRecordFile is returned when the record of instances cannot be read or
	// written.
	ErrRecordFile = errors.New("record of MIG instances")

	// ErrNoRoom is returned for a service whose model does not fit what the
	// others leave of a GPU's memory.
	ErrNoRoom = errors.New("the GPU has no room for the service")
)

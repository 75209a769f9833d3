package driver

import "errors"

var (
	// ErrNoLibrary is returned when libcuda.so.1 is not on this machine or
	// cannot be loaded.
	ErrNoLibrary = errors.New("the CUDA driver library cannot be loaded")

	// ErrTooOld is returned when the library lacks a function that overlapd
	// calls.
	ErrTooOld = errors.New("the CUDA driver is too old")

	// ErrNotFound is returned when no visible GPU or MIG instance has the name
	// that is asked for.
	ErrNotFound = errors.New("no such GPU is visible to this process")

	// ErrClosed is returned when a thing is used after it was closed.
	ErrClosed = errors.New("driver: already closed")

	// ErrLeak is returned when a Context is released while things made from it
	// are still open.
	ErrLeak = errors.New("driver: not everything was closed")
)

package cuda

import "errors"

// Errors of opening the library.
var (
	// ErrNoDriver is returned when there is no NVML on the host or the kernel
	// module is not loaded.
	ErrNoDriver = errors.New("no NVIDIA driver")
	// ErrMismatch is returned when the kernel module and the libraries are of
	// different versions, as after an upgrade without a reboot.
	ErrMismatch = errors.New("NVIDIA kernel module and libraries differ")
	// ErrClosed is returned by a Host after Close.
	ErrClosed = errors.New("the NVML library is closed")
)

// Errors of a device.
var (
	// ErrLost is returned when a GPU no longer answers.
	ErrLost = errors.New("GPU is lost")
	// ErrReset is returned when a GPU must be reset before it goes on, or before
	// a change of its MIG mode takes effect. Nothing here resets a GPU.
	ErrReset = errors.New("GPU needs a reset")
	// ErrNotFound is returned when no device or instance has the name or ID.
	ErrNotFound = errors.New("not found")
	// ErrAmbiguous is returned when a shortened UUID fits several.
	ErrAmbiguous = errors.New("ambiguous name")
)

// Errors of a call.
var (
	// ErrPermission is returned when the user may not do what was asked.
	ErrPermission = errors.New("no permission")
	// ErrUnsupported is returned when the device or the driver cannot tell or do
	// what was asked.
	ErrUnsupported = errors.New("not supported")
	// ErrInUse is returned when processes or instances are in the way.
	ErrInUse = errors.New("in use")
	// ErrResources is returned when a GPU or compute instance does not fit.
	ErrResources = errors.New("insufficient resources")
	// ErrDriver is returned for every other answer of the driver.
	ErrDriver = errors.New("driver error")
)

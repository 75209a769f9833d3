package segments

import (
	"errors"
	"fmt"
	"strings"

	"github.com/overlapd/overlapd/cuda/driver"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// fault adds to an error what it means for the worker. ONNX Runtime only has
// words for what the driver said, and keeps errors of a kernel for itself until
// the next one; so the driver is asked again.
func (d *cudaDevice) fault(err error) error {
	if err == nil || errors.Is(err, wire.ErrDeviceMemory) || errors.Is(err, wire.ErrDeviceLost) {
		return err
	}
	if r, ok := resultOf(err); ok {
		return deviceError(r, err)
	}
	var said *ort.Error
	if errors.As(err, &said) {
		var r driver.Result
		if errors.As(d.stream.Sync(), &r) {
			return deviceError(r, err)
		}
	}
	return err
}

// deviceError wraps err, which the result is the reason of.
func deviceError(r driver.Result, err error) error {
	switch {
	case r.OutOfMemory():
		return fmt.Errorf("%w: %w", wire.ErrDeviceMemory, err)
	case r.Sticky():
		return fmt.Errorf("%w: %w", wire.ErrDeviceLost, err)
	}
	return err
}

// resultOf finds the driver's result in an error: as itself, or in the words of
// ONNX Runtime.
func resultOf(err error) (driver.Result, bool) {
	var r driver.Result
	if errors.As(err, &r) {
		return r, true
	}
	var said *ort.Error
	if !errors.As(err, &said) {
		return 0, false
	}
	if _, rest, ok := strings.Cut(said.Message, "CUDA failure "); ok {
		if _, err := fmt.Sscanf(rest, "%d:", &r); err == nil {
			return r, true
		}
	}
	for _, words := range [...]string{"Failed to allocate memory for requested buffer", "Available memory of", "CUDA out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"} {
		if strings.Contains(said.Message, words) {
			return driver.OutOfMemory, true
		}
	}
	return 0, false
}

package wire

import (
	"errors"
	"fmt"
)

// These errors are returned by an engine, and carried across the wire.
var (
	// ErrEngine is returned when running an operator failed and no other error
	// is more precise.
	ErrEngine = errors.New("segments: engine failed")

	// ErrUnknownBatch is returned for a batch that was never started, or was
	// finished or released.
	ErrUnknownBatch = errors.New("no such batch")

	// ErrBatchExists is returned when a batch is started twice.
	ErrBatchExists = errors.New("the batch was started already")

	// ErrSpanOrder is returned for a span that does not begin where the
	// batch stands, or ends outside the model.
	ErrSpanOrder = errors.New("the span does not follow on what the batch has run")

	// ErrMemory is returned when the intermediates of a batch would not fit
	// the budget.
	ErrMemory = errors.New("the intermediates exceed the memory budget")

	// ErrInput is returned when the inputs of a batch do not fit the model.
	ErrInput = errors.New("the inputs do not fit the model")

	// ErrOutput is returned when an output cannot be split among the queries
	// of a batch or handed over as a tensor.
	ErrOutput = errors.New("the outputs cannot be handed over")

	// ErrDeviceFull is returned when a model needs more of a GPU's memory than
	// the worker is given or the GPU has.
	ErrDeviceFull = errors.New("the model does not fit the memory of the GPU")

	// ErrDeviceMemory is returned when a GPU has no memory left for what a
	// batch needs. It ends the worker: only another process may get further.
	ErrDeviceMemory = errors.New("the GPU is out of memory")

	// ErrDeviceLost is returned when a GPU answers nothing but errors any more:
	// a kernel failed, the MPS server is gone, or the GPU itself. It ends the
	// worker as well.
	ErrDeviceLost = errors.New("the GPU cannot be used any more by this process")
)

// FailCode is the sort of a failure. It carries an error across the wire, so
// that errors.Is holds in the daemon as it did in the worker.
type FailCode uint8

// The failures that the daemon distinguishes. Any other is CodeEngine.
const (
	CodeEngine FailCode = 1 + iota
	CodeArenaFull
	CodeUnknownBatch
	CodeBatchExists
	CodeSpanOrder
	CodeMemory
	CodeInput
	CodeOutput
	CodeDeviceMemory
	CodeDeviceLost
	CodeDeviceFull
)

// failures are the errors by code.
var failures = [...]error{
	CodeEngine:       ErrEngine,
	CodeArenaFull:    ErrArenaFull,
	CodeUnknownBatch: ErrUnknownBatch,
	CodeBatchExists:  ErrBatchExists,
	CodeSpanOrder:    ErrSpanOrder,
	CodeMemory:       ErrMemory,
	CodeInput:        ErrInput,
	CodeOutput:       ErrOutput,
	CodeDeviceMemory: ErrDeviceMemory,
	CodeDeviceLost:   ErrDeviceLost,
	CodeDeviceFull:   ErrDeviceFull,
}

// CodeOf returns the code of an engine's error. Of an error that wraps several
// of those above it is the last in their order, so that the device counts before
// what a batch asked of it; but a device that is lost comes first.
func CodeOf(err error) FailCode {
	if errors.Is(err, ErrDeviceLost) {
		return CodeDeviceLost
	}
	for code := len(failures) - 1; code > int(CodeEngine); code-- {
		if errors.Is(err, failures[code]) {
			return FailCode(code)
		}
	}
	return CodeEngine
}

// Err returns the failure as an error that wraps the sentinel of its code.
func (m *Failed) Err() error { return m.Code.wrap(m.Message) }

func (c FailCode) wrap(message string) error {
	sentinel := ErrEngine
	if c >= CodeEngine && int(c) < len(failures) {
		sentinel = failures[c]
	}
	return fmt.Errorf("%w: %s", sentinel, message)
}

// Ends reports whether the worker ends after this failure by itself.
func (c FailCode) Ends() bool { return c == CodeDeviceMemory || c == CodeDeviceLost }

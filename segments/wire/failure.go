package wire

import "errors"

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

	// ErrTooLarge is returned when a query needs more memory than the service may
	// take for all of them, for its intermediates or its outputs: it will never run.
	ErrTooLarge = errors.New("the query is too large for its service")

	// ErrInput is returned when the inputs of a batch do not fit the model.
	ErrInput = errors.New("the inputs do not fit the model")

	// ErrOutput is returned when an output cannot be split among the queries
	// of a batch or handed over as a tensor.
	ErrOutput = errors.New("the outputs cannot be handed over")

	// ErrMove is returned when a batch cannot go from a worker to another: the two have
	// cut the model differently, or what it holds is no tensor.
	ErrMove = errors.New("the batch cannot be moved")

	// ErrModel is returned when a model cannot be loaded as it is, so that another
	// try would end in the same way.
	ErrModel = errors.New("the model cannot be served")

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

// failures are the errors by their codes on the wire, so that errors.Is holds in the
// daemon as it did in the worker. Any other is ErrEngine.
var failures = [...]error{
	ErrEngine, ErrArenaFull, ErrUnknownBatch, ErrBatchExists, ErrSpanOrder, ErrMemory, ErrTooLarge, ErrInput, ErrOutput, ErrModel,
	ErrMove, ErrDeviceMemory, ErrDeviceFull, ErrDeviceLost,
}

// codeOf returns the code of an engine's error. Of an error that wraps several
// of those above it is the last in their order, so that the device counts before
// what a batch asked of it.
func codeOf(err error) uint8 {
	for code := len(failures) - 1; code > 0; code-- {
		if errors.Is(err, failures[code]) {
			return uint8(code)
		}
	}
	return 0
}

// Ends reports whether a worker ends after this error by itself: its process would
// answer nothing else any more, or what it holds must be given back.
func Ends(err error) bool {
	code := codeOf(err)
	return failures[code] == ErrDeviceMemory || failures[code] == ErrDeviceLost
}

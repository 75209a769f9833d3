package wire

import "errors"

// Errors that an engine returns, and that are carried across the wire.
var (
	// ErrEngine is returned if an operator failed and no other error is more
	// specific.
	ErrEngine = errors.New("segments: engine failed")

	// ErrUnknownBatch is returned for a batch that was never started, or that has
	// finished or was released.
	ErrUnknownBatch = errors.New("no such batch")

	// ErrBatchExists is returned if a batch is started twice.
	ErrBatchExists = errors.New("the batch was already started")

	// ErrSpanOrder is returned for a span that does not begin where the batch is
	// paused, or that ends outside the model.
	ErrSpanOrder = errors.New("the operators do not follow those that the batch has run")

	// ErrMemory is returned if the intermediates of a batch would exceed the budget.
	ErrMemory = errors.New("the intermediates exceed the memory budget")

	// ErrTooLarge is returned if a query alone needs more memory for intermediates
	// or outputs than its service has. It can never run.
	ErrTooLarge = errors.New("the query is too large for its service")

	// ErrInput is returned if the inputs of a batch do not match the model.
	ErrInput = errors.New("the inputs do not match the model")

	// ErrOutput is returned if an output cannot be split among the queries of a
	// batch, or is not a tensor.
	ErrOutput = errors.New("the outputs cannot be stored")

	// ErrMove is returned if a batch cannot move between two workers: they have cut
	// the model differently, or it holds a value that is not a tensor.
	ErrMove = errors.New("the batch cannot be moved")

	// ErrModel is returned for an invalid model. Another attempt to load it would
	// fail in the same way.
	ErrModel = errors.New("the model cannot be served")

	// ErrDeviceFull is returned if a model needs more GPU memory than the worker is
	// given or the GPU has.
	ErrDeviceFull = errors.New("the model does not fit the memory of the GPU")

	// ErrDeviceMemory is returned if a GPU ran out of memory for a batch. It ends the
	// worker, because only a new process may get further.
	ErrDeviceMemory = errors.New("the GPU is out of memory")

	// ErrDeviceLost is returned if a GPU returns only errors: a kernel failed, or the
	// MPS server or the GPU itself is gone. It ends the worker as well.
	ErrDeviceLost = errors.New("this process can no longer use the GPU")
)

// failures maps codes on the wire to errors, so that errors.Is works in the daemon as
// it did in the worker. The codes are positions; every other error is ErrEngine.
var failures = [...]error{
	ErrEngine, ErrArenaFull, ErrUnknownBatch, ErrBatchExists, ErrSpanOrder, ErrMemory, ErrTooLarge, ErrInput, ErrOutput, ErrModel,
	ErrMove, ErrDeviceMemory, ErrDeviceFull, ErrDeviceLost,
}

// codeOf returns the code of an engine's error. If an error wraps several of those
// above, the last in their order wins, so that faults of the device take precedence
// over those of a batch.
func codeOf(err error) uint8 {
	for code := len(failures) - 1; code > 0; code-- {
		if errors.Is(err, failures[code]) {
			return uint8(code)
		}
	}
	return 0
}

// Ends reports whether a worker exits after this error: its process would only return
// errors from now on, or must free its GPU memory.
func Ends(err error) bool {
	code := codeOf(err)
	return failures[code] == ErrDeviceMemory || failures[code] == ErrDeviceLost
}

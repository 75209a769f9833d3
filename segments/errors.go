package segments

import "errors"

// These errors are returned while a model is loaded.
var (
	// ErrLoadFailed is returned by a worker that could not load its model and
	// has told the daemon why.
	ErrLoadFailed = errors.New("the model could not be loaded")

	// ErrUnservable is returned when a model cannot be offered over the
	// endpoint, because an input or output is not a tensor.
	ErrUnservable = errors.New("the model has an input or output that is not a tensor")

	// ErrDeviceFull is returned when a model needs more of a GPU's memory than
	// the worker is given or the GPU has.
	ErrDeviceFull = errors.New("the model does not fit the memory of the GPU")
)

// These errors end a worker: only another process may get further.
var (
	// ErrDeviceMemory is returned when a GPU has no memory left for what a
	// batch needs.
	ErrDeviceMemory = errors.New("the GPU is out of memory")

	// ErrDeviceLost is returned when a GPU answers nothing but errors any more:
	// a kernel failed, the MPS server is gone, or the GPU itself.
	ErrDeviceLost = errors.New("the GPU cannot be used any more by this process")

	errFar = errors.New("segments: no device to copy from")
)

// These errors are returned while batches run.
var (
	// ErrUnknownBatch is returned for a batch that was never started, or was
	// finished or released.
	ErrUnknownBatch = errors.New("no such batch")

	// ErrBatchExists is returned when a batch is started twice.
	ErrBatchExists = errors.New("the batch was started already")

	// ErrSpanOrder is returned for a span that does not begin where the
	// batch stands, or ends outside the model.
	ErrSpanOrder = errors.New("the span does not follow on what the batch has run")

	// ErrUnfinished is returned when outputs are asked of a batch that has
	// operators left.
	ErrUnfinished = errors.New("the batch is not finished")

	// ErrMemory is returned when the intermediates of a batch would not fit
	// the budget.
	ErrMemory = errors.New("the intermediates exceed the memory budget")

	// ErrInput is returned when the inputs of a batch do not fit the model.
	ErrInput = errors.New("the inputs do not fit the model")

	// ErrOutput is returned when an output cannot be split among the queries
	// of a batch or handed over as a tensor.
	ErrOutput = errors.New("the outputs cannot be handed over")
)

package segments

import (
	"errors"

	"github.com/overlapd/overlapd/segments/wire"
)

var (
	// ErrUnservable is returned when a model cannot be offered over the
	// endpoint, because an input or output is not a tensor.
	ErrUnservable = errors.New("the model has an input or output that is not a tensor")

	// ErrUnfinished is returned when outputs are asked of a batch that has
	// operators left.
	ErrUnfinished = errors.New("the batch is not finished")

	errFar = errors.New("segments: no device to copy from")
)

// ends reports whether the worker has to end after this error: its process
// would answer nothing else any more, or what it holds must be given back.
func ends(err error) bool { return wire.CodeOf(err).Ends() }

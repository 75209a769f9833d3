package segments

import (
	"errors"
	"fmt"
)

// ErrEngine is returned when running an operator failed and no other error
// says why.
var ErrEngine = errors.New("segments: engine failed")

// FailCode tells the sort of a failure. It carries an error across the wire, so
// that errors.Is holds in the daemon as it did in the worker.
type FailCode uint8

// The failures that the daemon tells apart. Any other is CodeEngine.
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

var failures = map[FailCode]error{
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

// ends reports whether the worker has to end after this error: its process
// would answer nothing else any more, or what it holds must be given back.
func ends(err error) bool {
	return errors.Is(err, ErrDeviceMemory) || errors.Is(err, ErrDeviceLost)
}

func codeOf(err error) FailCode {
	for code, sentinel := range failures {
		if errors.Is(err, sentinel) {
			return code
		}
	}
	return CodeEngine
}

// loadCodeOf returns the code of an error of loading, 0 if it is none that is
// told apart.
func loadCodeOf(err error) FailCode {
	if code := codeOf(err); code != CodeEngine {
		return code
	}
	return 0
}

// Err returns the failure as an error that wraps the sentinel of its code.
func (m *Failed) Err() error { return m.Code.wrap(m.Message) }

func (c FailCode) wrap(message string) error {
	sentinel, ok := failures[c]
	if !ok {
		sentinel = ErrEngine
	}
	return fmt.Errorf("%w: %s", sentinel, message)
}

// Ends reports whether the worker ends after this failure by itself.
func (c FailCode) Ends() bool { return c == CodeDeviceMemory || c == CodeDeviceLost }

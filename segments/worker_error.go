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
}

func codeOf(err error) FailCode {
	for code, sentinel := range failures {
		if errors.Is(err, sentinel) {
			return code
		}
	}
	return CodeEngine
}

// Err returns the failure as an error that wraps the sentinel of its code.
func (m *Failed) Err() error {
	sentinel, ok := failures[m.Code]
	if !ok {
		sentinel = ErrEngine
	}
	return fmt.Errorf("%w: %s", sentinel, m.Message)
}

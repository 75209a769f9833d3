package wire

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// LocalOutputs is an output arena without a worker: both of its ends are in
// this process. Nobody writes to it, so every output is zeros. It is not safe
// for concurrent use; the leases of its outputs are.
type LocalOutputs struct {
	outputs *Outputs
	arena   *WorkerOutputs
}

// NewLocalOutputs returns an arena of at least the given bytes.
func NewLocalOutputs(bytes int64) (*LocalOutputs, error) {
	outputs, err := NewOutputs(bytes)
	if err != nil {
		return nil, err
	}
	defer outputs.CloseFile()
	arena, err := OpenOutputs(outputs.File().Fd())
	if err != nil {
		outputs.Close()
		return nil, err
	}
	return &LocalOutputs{outputs, arena}, nil
}

// Outputs returns the end that leases are made at. What was allocated must be
// acquired there.
func (l *LocalOutputs) Outputs() *Outputs { return l.outputs }

// Alloc returns an output of zeros. It returns ErrArenaFull if there is no
// room, and ErrBadOutput for a shape or type that has no size.
func (l *LocalOutputs) Alloc(t models.DataType, shape ...int64) (OutputTensor, error) {
	bytes := int64(t.Bytes())
	for _, d := range shape {
		if d < 0 || d > 0 && bytes > MaxArenaBytes/d {
			return OutputTensor{}, fmt.Errorf("%w: %s%v", ErrBadOutput, t, shape)
		}
		bytes *= d
	}
	if t.Bytes() == 0 {
		return OutputTensor{}, fmt.Errorf("%w: %s%v", ErrBadOutput, t, shape)
	}
	out, _, err := l.arena.Alloc(t, shape, bytes)
	return out, err
}

// Close refuses further leases. The memory of those that are left goes away
// with the last of them.
func (l *LocalOutputs) Close() error {
	l.outputs.Close()
	return l.arena.Close()
}

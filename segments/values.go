package segments

import (
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/ort"
	"github.com/overlapd/overlapd/segments/wire"
)

// StartValues begins batch id with a value for each input of the model, of
// whatever kind. They stay the caller's, and must stay open until the batch is
// finished or released.
func (e *CutModel) StartValues(id models.BatchID, values []*ort.Value) error {
	if e.batches[id] != nil {
		return fmt.Errorf("batch %d: %w", id, wire.ErrBatchExists)
	}
	if len(values) != len(e.inputs) {
		return fmt.Errorf("%w: %d inputs given, the model has %d", wire.ErrInput, len(values), len(e.inputs))
	}
	dims := make([][]int64, len(values))
	size := 1
	for i, v := range values {
		dims[i] = v.Shape()
		if i == slices.Index(e.batchDims, 0) && len(dims[i]) > 0 {
			size = int(dims[i][0])
		}
	}
	b, err := e.newBatch(dims, []int{size})
	if err != nil {
		return err
	}
	for i, v := range values {
		e.bindInput(b, i, v)
	}
	e.batches[id] = b
	return nil
}

// Values lends the outputs of a batch that has run to its end. They are good
// until the batch is released.
func (e *CutModel) Values(id models.BatchID) ([]*ort.Value, error) {
	b, err := e.finished(id)
	if err != nil {
		return nil, err
	}
	values := make([]*ort.Value, len(e.outputs))
	for i, out := range e.outputs {
		values[i] = b.value(e, out)
		if e.device.far() {
			if values[i], err = e.hostCopy(b, values[i], out); err != nil {
				return nil, e.device.fault(err)
			}
		}
	}
	if e.device.far() {
		return values, e.endSpan()
	}
	return values, nil
}

// finished returns a batch that has run to its end.
func (e *CutModel) finished(id models.BatchID) (*batch, error) {
	b := e.batches[id]
	if b == nil {
		return nil, fmt.Errorf("batch %d: %w", id, wire.ErrUnknownBatch)
	}
	if b.next != len(e.cut.pieces) {
		return nil, fmt.Errorf("batch %d stands at operator %d of %d: %w", id, b.next, len(e.cut.pieces), ErrUnfinished)
	}
	return b, nil
}

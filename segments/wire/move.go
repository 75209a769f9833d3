package wire

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// The steps of a move. The first two go to the worker that has the batch, the last to
// the one that gets it. A worker answers each with Moved, or with Failed; after a
// Failed it no longer has the batch.
const (
	// MoveDescribe asks for the list of values to move.
	MoveDescribe uint8 = iota

	// MoveExport asks the worker to write the values and forget the batch.
	MoveExport

	// MoveImport asks the worker to continue the batch with these values.
	MoveImport
	moveSteps
)

// Move is one step of moving a batch between two workers of a service. decode reuses
// the memory of Queries and Values.
type Move struct {
	Round uint64
	Batch models.BatchID

	// Start is the operator with which the batch continues.
	Start int
	Step  uint8

	// Cut identifies the list of values, so that a worker that cut the model
	// differently does not mistake them for others.
	Cut uint64

	// Queries are the queries of the batch, only for MoveImport. Their inputs lie in
	// the input arena, so no worker passes them on.
	Queries []QueryTensors

	// Values are the values that operators before Start have produced and that later
	// ones read, including outputs of the model, in the order of the model's values.
	// They say where each lies in the memory for moves.
	//
	// In MoveDescribe there is at most one value: a block of that memory to which
	// the worker exports the values immediately if they fit.
	Values []models.Tensor

	inputs []models.Tensor
	dims   []int64
}

func (m *Move) check() error {
	if m.Start <= 0 || m.Start > maxPosition || m.Step >= moveSteps || (len(m.Queries) > 0) != (m.Step == MoveImport) ||
		len(m.Values) > 1 && m.Step == MoveDescribe {
		return fmt.Errorf("%w: step %d of a move at operator %d, with %d queries and %d values", ErrMessage, m.Step, m.Start, len(m.Queries), len(m.Values))
	}
	return nil
}

func (m *Move) appendPayload(dst []byte) ([]byte, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	dst = le.AppendUint64(dst, m.Round)
	dst = le.AppendUint64(dst, uint64(m.Batch))
	dst = le.AppendUint32(dst, uint32(m.Start))
	dst = append(dst, m.Step)
	dst = le.AppendUint64(dst, m.Cut)
	dst, err := appendList(dst, m.Queries, MaxQueries, appendQuery)
	if err != nil {
		return nil, err
	}
	return appendList(dst, m.Values, MaxTensors, appendTensor)
}

func (m *Move) decode(payload []byte) error {
	d := decoder{data: payload}
	m.Round = d.uint64()
	m.Batch = models.BatchID(d.uint64())
	m.Start = int(d.uint32())
	m.Step = d.uint8()
	m.Cut = d.uint64()
	m.inputs, m.dims = m.inputs[:0], m.dims[:0]
	m.Queries, m.inputs, m.dims = d.queries(m.Queries, m.inputs, m.dims)
	m.Values, m.dims = d.tensors(m.Values[:0], m.dims)
	if err := d.done(KindMove); err != nil {
		return err
	}
	return m.check()
}

// Moved answers a step of a move.
//
// The answer to MoveDescribe has the Values and the Cut. If Copied is set, the values
// lie in the block that came with the step, and the worker has forgotten the batch;
// otherwise they have no place yet. In the answer to MoveImport, Copied means that the
// worker has copied the values and no longer reads the memory for moves.
type Moved struct {
	Round  uint64
	Batch  models.BatchID
	Cut    uint64
	Copied bool
	Values []models.Tensor

	dims []int64
}

func (m *Moved) appendPayload(dst []byte) ([]byte, error) {
	dst = le.AppendUint64(dst, m.Round)
	dst = le.AppendUint64(dst, uint64(m.Batch))
	dst = le.AppendUint64(dst, m.Cut)
	copied := uint8(0)
	if m.Copied {
		copied = 1
	}
	return appendList(append(dst, copied), m.Values, MaxTensors, appendTensor)
}

func (m *Moved) decode(payload []byte) error {
	d := decoder{data: payload}
	m.Round = d.uint64()
	m.Batch = models.BatchID(d.uint64())
	m.Cut = d.uint64()
	copied := d.uint8()
	m.Copied = copied == 1
	m.Values, m.dims = d.tensors(m.Values[:0], m.dims[:0])
	d.failed = d.failed || copied > 1
	return d.done(KindMoved)
}

// Place lays out the values in memory one after another from offset 0, aligned to
// ArenaAlign, and returns their total size. It returns ErrMessage if the size of a
// value does not match its type and shape, and ErrArenaFull if they exceed the limit.
func Place(values []models.Tensor, limit int64) (bytes int64, err error) {
	for i := range values {
		t := &values[i]
		if !fits(t.Type, t.Shape, t.Bytes) {
			return 0, fmt.Errorf("%w: value %d is %s%v in %d bytes", ErrMessage, i, t.Type, t.Shape, t.Bytes)
		}
		if t.Bytes > limit-bytes {
			return 0, fmt.Errorf("%w: value %d of a batch has %d bytes, those before it %d, and all of the memory for moves %d", ErrArenaFull, i, t.Bytes, bytes, limit)
		}
		t.Offset = bytes
		bytes += alignUp(t.Bytes, ArenaAlign)
	}
	return bytes, nil
}

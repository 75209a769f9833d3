package wire

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// The steps of a move. The first two go to the worker that has the batch, the last to
// the one that gets it. Each is answered with a Moved, or with a Failed: the worker has
// no such batch any more then.
const (
	MoveDescribe uint8 = iota // what is there to be moved?
	MoveExport                // write it, and forget the batch
	MoveImport                // go on with the batch
	moveSteps
)

// Move is a step of a batch on its way between two workers of a service. Start is the
// operator that the batch goes on with, and Queries are its own, whose inputs no worker
// passes on. Values are what operators before Start have made and others will read,
// outputs of the model included, in the order of the model's values, and where they lie in
// the memory for moves. In the first step there are none, or one: a block of that memory,
// where the worker writes what there is at once if it fits. Cut identifies that list, so
// that a worker takes no values for others.
//
// The memory of Queries and Values is kept between calls of decode.
type Move struct {
	Round   uint64
	Batch   models.BatchID
	Start   int
	Step    uint8
	Cut     uint64
	Queries []QueryTensors
	Values  []Tensor

	inputs []Tensor
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

// Moved answers a step of a Move. The first is answered with the Values, which lie nowhere
// yet, and the Cut; with Copied they lie in the block that came with it, and the batch is
// forgotten. Copied answers the last: the worker has values of its own and does not
// read those in the memory for moves any more.
type Moved struct {
	Round  uint64
	Batch  models.BatchID
	Cut    uint64
	Copied bool
	Values []Tensor

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

// Place gives the values their places in memory, one behind the other from 0 on, and
// returns how many bytes they take. The error is ErrMessage where one has not the bytes of
// its type and shape, and ErrArenaFull where they exceed the limit.
func Place(values []Tensor, limit int64) (bytes int64, err error) {
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

package worker

import (
	"fmt"

	"github.com/overlapd/overlapd/segments/wire"
)

// step performs one step of a move, and sends Moved or Failed. It returns an error if
// the worker must end; that error was sent as well.
func (w *worker) step(m *wire.Move) error {
	moved := wire.Moved{Round: m.Round, Batch: m.Batch}
	err := w.takeStep(m, &moved)
	return w.reply(m.Round, m.Batch, &moved, err)
}

// takeStep performs one step of a move and fills in the answer. A batch must be paused
// exactly where the move says.
func (w *worker) takeStep(m *wire.Move, moved *wire.Moved) error {
	b, exists := w.known(m.Batch)
	switch {
	case m.Step == wire.MoveImport && exists:
		return fmt.Errorf("batch %d: %w", m.Batch, wire.ErrBatchExists)
	case m.Step == wire.MoveImport:
		return w.take(m, moved)
	case !exists:
		return fmt.Errorf("batch %d: %w", m.Batch, wire.ErrUnknownBatch)
	case b.at != m.Start:
		return fmt.Errorf("%w: move at %d, batch %d is at %d", wire.ErrSpanOrder, m.Start, m.Batch, b.at)
	case m.Step == wire.MoveDescribe:
		return w.describe(m, moved)
	}
	return w.give(m)
}

// describe lists the values of a batch. If they fit into the block that came with the
// step, it exports them immediately, which saves the daemon a step.
func (w *worker) describe(m *wire.Move, moved *wire.Moved) (err error) {
	if moved.Values, moved.Cut, err = w.engine.Describe(m.Batch); err != nil || len(m.Values) == 0 {
		return err
	}
	block := &m.Values[0]
	if _, err := wire.Place(moved.Values, block.Bytes); err != nil {
		return nil // the daemon then sends MoveExport with a larger block
	}
	for i := range moved.Values {
		moved.Values[i].Offset += block.Offset
	}
	moved.Copied = true
	at := *m
	at.Values = moved.Values
	return w.give(&at)
}

// give exports the values of a batch, and forgets the batch.
func (w *worker) give(m *wire.Move) error {
	if err := findIn(w.moves, m.Values, wire.ErrMove); err != nil {
		return err
	}
	err := w.engine.Export(m.Batch, m.Values)
	w.forget(m.Batch)
	return err
}

// take begins a batch with the values that another worker exported.
func (w *worker) take(m *wire.Move, moved *wire.Moved) error {
	if m.Start >= w.end {
		return fmt.Errorf("%w: move at %d of %d operators", wire.ErrSpanOrder, m.Start, w.end)
	}
	err := w.find(m.Queries)
	if err == nil {
		err = findIn(w.moves, m.Values, wire.ErrMove)
	}
	if err != nil {
		return err
	}
	w.newBatch(m.Batch, m.Start, len(m.Queries))
	moved.Copied, err = w.engine.Import(m.Batch, m.Start, m.Queries, m.Cut, m.Values)
	return err
}

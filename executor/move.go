package executor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// move is a paused batch on its way from one worker of its service to another. It
// takes up to three steps, each sent in order with everything else for its worker:
//
//  1. Describe: the first worker lists the batch's intermediate values.
//  2. Export: it writes them to a block of memory that both workers have mapped,
//     and forgets the batch.
//  3. Import: the second worker starts the batch with these values.
//
// If a batch of the same kind has moved before, the first two steps are combined.
// The export would otherwise wait behind the span that the first worker is sent
// next.
type move struct {
	from, to *service
	outcome  Outcome

	// took is the time of the steps, without the time of runs ahead of them.
	took    time.Duration
	planned time.Duration
	queries []wire.QueryTensors

	// step is the last step that was sent.
	step wire.Move
}

// Move moves a paused batch to the worker that another executor runs for its
// service, and returns immediately. If Move returns no error, the channel that both
// executors share delivers exactly one Outcome with Moved set, even if workers
// crash. Its span is SpanDone if the batch has arrived. Otherwise it is SpanLost
// and Err says why; the batch no longer exists, and its queries can run again.
//
// The span of the request begins at the operator where the batch is paused, which
// is after the first and before the end. Queries lists all queries of the batch in
// the order in which they started. They and the memory of their inputs must remain
// valid until the outcome. A batch that is released during the move may still
// arrive.
//
// An emulated device has no values to send, so its workers wait for the planned
// time instead.
func Move(id uint64, from, to *Executor, request SpanRequest, planned time.Duration) error {
	span := request.Span
	switch {
	case from == to:
		return fmt.Errorf("%w: batch %d cannot move to the device that it is on", ErrBadSpan, span.Batch)
	case from.outcomes != to.outcomes:
		return fmt.Errorf("%w: executors between which batches move need the same Outcomes", ErrOptions)
	case span.Start <= 0 || len(request.Queries) == 0:
		return fmt.Errorf("%w: a move at operator %d with %d queries", ErrBadSpan, span.Start, len(request.Queries))
	}
	into, err := to.admit(&request)
	if err != nil {
		return err
	}
	out, err := from.admit(&request)
	if err == nil && (out.spec.Moves != into.spec.Moves || out.spec.Inputs != into.spec.Inputs) {
		err = fmt.Errorf("%w: the workers of service %s do not share memory", ErrOptions, out.spec.Name)
		out.rounds.Add(-1)
	}
	if moving := int(from.moves.Add(1)); err == nil && (moving > MaxMoves || moving+len(from.outcomes) > cap(from.outcomes)/MaxOutcomes*MaxMoves) {
		err = fmt.Errorf("%w: %d moves", ErrTooManyRounds, moving)
		out.rounds.Add(-1)
	}
	if err != nil {
		into.rounds.Add(-1)
		from.moves.Add(-1)
		return err
	}
	m := &move{
		from: out, to: into, planned: planned, queries: request.Queries,
		outcome: Outcome{Round: id, Device: from.opts.Device, Moved: true, Spans: make([]SpanOutcome, 1)},
		step:    wire.Move{Round: id, Batch: span.Batch, Start: span.Start},
	}
	m.outcome.Spans[0].Span = span
	m.take(m.from, m.expect())
	return nil
}

// kind identifies batches that usually take the same number of bytes along.
type kind struct{ start, size, seqLen int }

// maxKinds limits for how many kinds of batch a service remembers that number.
const maxKinds = 64

func (m *move) kind() kind {
	s := &m.outcome.Spans[0].Span
	return kind{s.Start, s.Size, s.SeqLen}
}

// expect allocates a block that was large enough for the last batch of this kind,
// and adds it to the first step. It returns no block if there was no such batch or
// the arena is full; the move then takes three steps.
func (m *move) expect() block {
	m.from.mu.Lock()
	bytes := m.from.mu.moved[m.kind()]
	m.from.mu.Unlock()
	if bytes == 0 {
		return block{}
	}
	b := block{memory: m.from.spec.Moves}
	var err error
	if b.offset, _, err = b.memory.Alloc(bytes); err != nil {
		return block{}
	}
	m.step.Values = []models.Tensor{{Type: models.Uint8, Shape: []int64{bytes}, Offset: b.offset, Bytes: bytes}}
	return b
}

// remember records how many bytes a batch of this kind took along. When there are
// too many kinds, it starts over.
func (m *move) remember(bytes int64) {
	m.from.mu.Lock()
	defer m.from.mu.Unlock()
	if m.from.mu.moved == nil || len(m.from.mu.moved) >= maxKinds {
		m.from.mu.moved = map[kind]int64{}
	}
	m.from.mu.moved[m.kind()] = bytes
}

// admit returns the service of a request. It counts as a round, so the service is
// not forgotten before the outcome of the move is delivered.
func (e *Executor) admit(request *SpanRequest) (*service, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.service(request.Span.Service)
	switch {
	case e.mu.closed:
		return nil, ErrClosed
	case s == nil:
		return nil, fmt.Errorf("%w: %d", ErrUnknownService, request.Span.Service)
	case s.spec.Moves == nil:
		return nil, fmt.Errorf("%w: service %s has no memory for moves", ErrOptions, s.spec.Name)
	}
	if err := s.checkInputs(request.Queries); err != nil {
		return nil, err
	}
	s.rounds.Add(1)
	return s, nil
}

// take sends the next step to the worker of a service. If that fails, it frees the
// block and ends the move.
func (m *move) take(s *service, b block) {
	w, err := s.able()
	if err == nil {
		err = w.send(flight{task: m, span: m.outcome.Spans[0].Span, since: time.Now(), beside: true, block: b}, &m.step, m.step.Queries)
		if err == nil {
			return
		}
		if m.step.Step != wire.MoveImport {
			w.release(m.step.Batch)
		}
	}
	b.free()
	m.end(err)
}

// end delivers the outcome.
func (m *move) end(err error) {
	s := &m.outcome.Spans[0]
	s.Status, s.Err, s.Reached = models.SpanDone, err, s.Span.Start
	if err != nil {
		s.Status = models.SpanLost
	}
	m.outcome.Took = m.took
	m.from.executor.outcomes <- m.outcome
	m.from.executor.moves.Add(-1)
	m.from.rounds.Add(-1)
	m.to.rounds.Add(-1)
}

func (m *move) number() uint64 { return m.outcome.Round }

func (m *move) lost(_ *flight, _ models.Status, err error) { m.end(err) }

// answered records that a worker completed a step, and takes the next one.
func (m *move) answered(w *worker, f *flight, answer wire.Message) error {
	d, ok := answer.(*wire.Moved)
	if !ok {
		return fmt.Errorf("%s, but the batch moves", answer.Kind())
	}
	m.took += time.Since(f.since)
	switch {
	case m.step.Step == wire.MoveDescribe && d.Copied:
		if err := m.within(d.Values); err != nil {
			return err
		}
		m.step.Values, m.step.Cut = d.Values, d.Cut
		m.given(w, f)
	case m.step.Step == wire.MoveDescribe:
		return m.described(w, f, d)
	case m.step.Step == wire.MoveExport:
		m.given(w, f)
	default:
		m.arrived(w, f, d.Copied)
	}
	return nil
}

// within returns an error unless the values lie in the block that came with the
// first step, packed as [wire.Place] does.
func (m *move) within(values []models.Tensor) error {
	if len(m.step.Values) == 0 {
		return fmt.Errorf("%s, but nothing was to be written", wire.KindMoved)
	}
	room, placed := &m.step.Values[0], slices.Clone(values)
	if _, err := wire.Place(placed, room.Bytes); err != nil {
		return err
	}
	for i := range values {
		if values[i].Offset != room.Offset+placed[i].Offset {
			return fmt.Errorf("%w: value %d is at byte %d of the memory for moves", wire.ErrMessage, i, values[i].Offset)
		}
	}
	return nil
}

// given sends the exported values to the other worker. On an emulated device it
// waits for the planned time first.
func (m *move) given(w *worker, f *flight) {
	b := w.land(f, true, 0)
	m.step.Step, m.step.Queries = wire.MoveImport, m.queries
	if w.service.executor.opts.Inside == nil || m.planned <= 0 {
		m.take(m.to, b)
		return
	}
	m.took += m.planned
	w.service.start(func() {
		child.Within(w.lost, m.planned)
		m.take(m.to, b)
	})
}

// described tells the worker to write the values to a block. If there is no room,
// it releases the batch and ends the move.
func (m *move) described(w *worker, f *flight, d *wire.Moved) error {
	b := block{memory: w.service.spec.Moves}
	bytes, err := wire.Place(d.Values, b.memory.Bytes())
	if err != nil && !errors.Is(err, wire.ErrArenaFull) {
		return err // the block that came with the step stays allocated until the worker is gone
	}
	w.land(f, false, 0).free()
	if err == nil {
		b.offset, _, err = b.memory.Alloc(bytes)
	}
	if err != nil {
		w.release(d.Batch)
		m.end(fmt.Errorf("moving batch %d at operator %d: %w; limit the number of moving batches, or raise worker.intermediate_bytes", d.Batch, m.step.Start, err))
		return nil
	}
	m.remember(bytes)
	for i := range d.Values {
		d.Values[i].Offset += b.offset
	}
	m.step.Step, m.step.Values, m.step.Cut = wire.MoveExport, d.Values, d.Cut
	m.take(m.from, b)
	return nil
}

// arrived ends the last step. The move is lost if the batch was released meanwhile.
// If the worker reads the values in place, the batch keeps the block.
func (m *move) arrived(w *worker, f *flight, copied bool) {
	b := w.land(f, false, 0)
	w.mu.Lock()
	batch, known := w.mu.batches[f.span.Batch]
	if known && !copied {
		batch.block = b
		w.mu.batches[f.span.Batch] = batch
	} else {
		b.free()
	}
	w.mu.Unlock()
	if !known {
		m.end(ErrBatchLost)
		return
	}
	m.end(nil)
}

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

// move is a paused batch on its way from one worker of its service to another. Its steps
// are in flight one after the other, each in the order of what is sent to its worker
// besides: the first worker says what there is, writes it to a block of the memory that
// both have mapped, and forgets the batch; the second begins the batch with it. Where a batch
// like it has moved before the first two are one: else the second would wait for the span
// that the worker is sent next.
type move struct {
	from, to *service
	outcome  Outcome
	took     time.Duration // by the steps, without what ran before them
	planned  time.Duration
	queries  []wire.QueryTensors
	step     wire.Move // the last that was sent
}

// Move has a paused batch go on with the worker that another executor has of its service.
// It returns at once. If it returns no error, the channel that both executors deliver to
// gets exactly one Outcome with Moved set, whatever becomes of the workers. Its span is
// SpanDone if the batch has arrived; else it is SpanLost, says why, and the batch exists
// no more: its queries can be run again.
//
// The span of the request begins where the batch stands, after its first operator and
// before its end. Queries are all of the batch, in the order in which they were given when
// it started; they, and the memory of their inputs, must stay as they are until the outcome
// comes. A batch that is released meanwhile may arrive nevertheless. Where nothing is
// computed there is nothing to be sent: the workers of an emulated device take the time that
// is planned.
func Move(id uint64, from, to *Executor, request SpanRequest, planned time.Duration) error {
	span := request.Span
	switch {
	case from == to:
		return fmt.Errorf("%w: batch %d is to move to where it is", ErrBadSpan, span.Batch)
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
		err = fmt.Errorf("%w: the workers of service %s do not share their memory", ErrOptions, out.spec.Name)
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

// kind is what decides how many bytes a batch takes along, as a rule.
type kind struct{ start, size, seqLen int }

// maxKinds is of how many kinds of batch a service remembers that.
const maxKinds = 64

func (m *move) kind() kind {
	s := &m.outcome.Spans[0].Span
	return kind{s.Start, s.Size, s.SeqLen}
}

// expect has the first step bring a block that was large enough for the last batch of this
// kind, if there was one.
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
	m.step.Values = []wire.Tensor{{Type: models.Uint8, Shape: []int64{bytes}, Offset: b.offset, Bytes: bytes}}
	return b
}

// remember keeps how many bytes a batch of this kind took along.
func (m *move) remember(bytes int64) {
	m.from.mu.Lock()
	defer m.from.mu.Unlock()
	if m.from.mu.moved == nil || len(m.from.mu.moved) >= maxKinds {
		m.from.mu.moved = map[kind]int64{}
	}
	m.from.mu.moved[m.kind()] = bytes
}

// admit returns the service of a request, which stays until the outcome of the move is
// delivered.
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

// take sends the next step to the worker of a service. The block is given back when that
// fails.
func (m *move) take(s *service, b block) {
	w, err := s.able()
	if err == nil {
		if err = m.send(w, b); err == nil {
			return
		}
		if m.step.Step != wire.MoveImport {
			w.release(m.step.Batch) // if it has it
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

// send sends the next step to a worker.
func (m *move) send(w *worker, b block) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	batch := m.step.Batch
	_, known := w.mu.batches[batch]
	arrives := m.step.Step == wire.MoveImport
	switch {
	case w.mu.cause != nil:
		return ErrNotReady
	case arrives && known:
		return fmt.Errorf("%w: batch %d is there already", ErrBadSpan, batch)
	case !arrives && !known:
		return ErrBatchLost
	case w.mu.flights.count == wire.StopWords:
		return ErrTooManyRounds
	}
	if err := w.sendLocked(&m.step); err != nil {
		return err
	}
	if arrives {
		w.mu.batches[batch] = held{queries: queryIDs(m.queries)}
	}
	w.mu.flights.push(flight{move: m, span: m.outcome.Spans[0].Span, since: time.Now(), unsent: w.mu.deaf, block: b}, w.fly)
	return nil
}

// stepTaken takes in that a worker has taken a step, and takes the next. An error means that
// the worker lies.
func stepTaken(w *worker, d *wire.Moved) error {
	f, err := w.flight(d.Round, d.Batch)
	if err != nil {
		return err
	}
	m := f.move
	if m == nil {
		return fmt.Errorf("%s, where the batch runs", wire.KindMoved)
	}
	m.took += time.Since(f.since)
	switch {
	case m.step.Step == wire.MoveDescribe && d.Copied:
		if err := m.within(d.Values); err != nil {
			return err
		}
		m.step.Values, m.step.Cut = d.Values, d.Cut
		m.given(w, &f)
	case m.step.Step == wire.MoveDescribe:
		return m.described(w, &f, d)
	case m.step.Step == wire.MoveExport:
		m.given(w, &f)
	default:
		m.arrived(w, &f, d.Copied)
	}
	return nil
}

// within returns an error unless values lie in the block of the first step, one behind the
// other.
func (m *move) within(values []wire.Tensor) error {
	if len(m.step.Values) == 0 {
		return fmt.Errorf("%s, where nothing was to be written", wire.KindMoved)
	}
	room, placed := &m.step.Values[0], slices.Clone(values)
	if _, err := wire.Place(placed, room.Bytes); err != nil {
		return err
	}
	for i := range values {
		if values[i].Offset != room.Offset+placed[i].Offset {
			return fmt.Errorf("%w: value %d lies at %d of the memory for moves", wire.ErrMessage, i, values[i].Offset)
		}
	}
	return nil
}

// given has the other worker go on with what the first has written.
func (m *move) given(w *worker, f *flight) {
	w.land(*f, true, 0)
	m.step.Step, m.step.Queries = wire.MoveImport, m.queries
	b := f.block
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

// described has the worker write the values to a block. Where there is no room for them
// the batch is released.
func (m *move) described(w *worker, f *flight, d *wire.Moved) error {
	b := block{memory: w.service.spec.Moves}
	bytes, err := wire.Place(d.Values, b.memory.Bytes())
	if err != nil && !errors.Is(err, wire.ErrArenaFull) {
		return err // and whoever lies has the block that came with the step until it is gone
	}
	w.land(*f, false, 0)
	f.block.free()
	if err == nil {
		b.offset, _, err = b.memory.Alloc(bytes)
	}
	if err != nil {
		w.release(d.Batch)
		m.end(fmt.Errorf("moving batch %d at operator %d: %w; let fewer batches be on their way, or raise worker.intermediate_bytes", d.Batch, m.step.Start, err))
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

// arrived ends the last step: the batch is there, unless it was released meanwhile.
func (m *move) arrived(w *worker, f *flight, copied bool) {
	w.land(*f, false, 0)
	w.mu.Lock()
	b, known := w.mu.batches[f.span.Batch]
	if known && !copied {
		b.block = f.block
		w.mu.batches[f.span.Batch] = b
	} else {
		f.block.free()
	}
	w.mu.Unlock()
	if !known {
		m.end(ErrBatchLost)
		return
	}
	m.end(nil)
}

// block is a part of the memory for moves, or none.
type block struct {
	memory *wire.InputArena
	offset int64
}

// free gives the block back. No worker may use it any more.
func (b block) free() {
	if b.memory != nil {
		_ = b.memory.Free(b.offset) // it was allocated
	}
}

// cargo is what a worker has of batches, and of the memory for moves.
type cargo struct {
	batches map[models.BatchID]held
	blocks  []block // that the process may use until it is gone
}

// held is a batch that a worker has.
type held struct {
	queries []models.QueryID
	block   block // that its values lie in, if it was moved to the worker
}

// forget forgets a batch. What it reads in the memory for moves is given back when
// nothing of it is in flight any more.
func (c *cargo) forget(id models.BatchID, sent *flights) {
	b := c.batches[id]
	delete(c.batches, id)
	for i := sent.count - 1; i >= 0; i-- {
		if f, _ := sent.at(i); f.span.Batch == id && f.move == nil {
			f.block = b.block
			return
		}
	}
	b.block.free()
}

// free gives back all blocks of a process that is gone.
func (c *cargo) free() {
	for _, b := range c.blocks {
		b.free()
	}
	for _, b := range c.batches {
		b.block.free()
	}
}

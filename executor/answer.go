package executor

import (
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// listen receives answers until the connection ends. It is the reader's main loop.
func (w *worker) listen() {
	defer close(w.read)
	var done wire.Done
	for w.awaitFlight() {
		kind, payload, err := w.next()
		if err == nil {
			err = w.answer(kind, payload, &done)
		}
		if err != nil {
			w.lose(err)
			return
		}
	}
}

// awaitFlight waits until a run is in flight. It also decides whether to poll for
// the answer: after a run longer than Poll, polling would only burn a core. It
// returns false when the worker is lost and owes no more answers.
func (w *worker) awaitFlight() bool {
	for over := false; ; {
		w.mu.Lock()
		flying, short := len(w.mu.flights.list) > 0, w.mu.took <= w.service.executor.opts.Poll
		w.mu.Unlock()
		if flying {
			w.conn.Poll = 0
			if short {
				w.conn.Poll = w.service.executor.opts.Poll
			}
			return true
		}
		if over {
			return false
		}
		select {
		case <-w.fly:
		case <-w.lost:
			over = true // check once more, for a run that was sent meanwhile
		}
	}
}

// answer handles one frame. An error wraps ErrProtocol and means that the worker
// sent something impossible. done is reused; a move keeps what answers its steps.
func (w *worker) answer(kind wire.Kind, payload []byte, done *wire.Done) error {
	var err error
	switch kind {
	case wire.KindDone:
		if err = wire.Decode(payload, done); err == nil {
			err = w.record(done.Round, done.Batch, done)
		}
	case wire.KindMoved:
		var moved wire.Moved
		if err = wire.Decode(payload, &moved); err == nil {
			err = w.record(moved.Round, moved.Batch, &moved)
		}
	case wire.KindFailed:
		var failed wire.Failed
		if err = wire.Decode(payload, &failed); err == nil {
			err = w.failed(&failed)
		}
	default:
		err = fmt.Errorf("%w: %s", wire.ErrUnexpectedKind, kind)
	}
	if err != nil {
		return broken(err)
	}
	return nil
}

// record lets a task in flight record its answer.
func (w *worker) record(round uint64, batch models.BatchID, answer wire.Message) error {
	f, err := w.flight(round, batch)
	if err != nil {
		return err
	}
	return f.task.answered(w, f, answer)
}

// answered ends a span that the worker reports as completed or stopped.
func (r *round) answered(w *worker, f *flight, answer wire.Message) error {
	d, ok := answer.(*wire.Done)
	if !ok {
		return fmt.Errorf("%s, but the batch is running", answer.Kind())
	}
	if err := f.check(d, len(w.info.Operators)); err != nil {
		return err
	}
	s := r.span(f.index)
	finished := d.Finished()
	if finished {
		queries, err := w.collect(d, f.queries)
		if err != nil {
			return err
		}
		s.Queries = queries
	}
	s.Status, s.Reached, s.Finished = models.SpanDone, d.Reached, finished
	if d.Reached < f.span.End {
		s.Status = models.SpanStopped
	}
	// A span cannot take longer than its round has, whatever the worker claims.
	passed := time.Since(r.begin)
	s.Took, s.DeviceTook = min(time.Duration(d.Nanos), passed), min(time.Duration(d.DeviceNanos), passed)
	w.land(f, finished, s.Took).free()
	r.end(f.index)
	return nil
}

// failed ends a task that the worker reports as failed. If the failure ends the
// worker too, a span is only lost, and can run again.
func (w *worker) failed(m *wire.Failed) error {
	f, err := w.flight(m.Round, m.Batch)
	if err != nil {
		return err
	}
	w.land(f, true, 0).free()
	status, failure := models.SpanFailed, m.Err()
	if wire.Ends(failure) {
		// The query is not at fault, so another worker may run it.
		status = models.SpanLost
		w.expire(failure)
	}
	f.task.lost(f, status, failure)
	return nil
}

// expire expects the worker to exit by itself, and ends it after CloseGrace if it
// has not: it may be waiting for a device that is gone.
func (w *worker) expire(cause error) {
	w.mu.Lock()
	w.mu.dying = cause
	if w.mu.cause == ErrExited { //nolint:errorlint // an error that wraps ErrExited is more specific
		w.mu.cause = cause
	}
	w.mu.Unlock()
	w.service.start(func() {
		if !child.Within(w.lost, w.service.executor.opts.CloseGrace) {
			w.lose(cause)
		}
	})
}

// flight returns the task in flight that an answer is for, or an error if the worker
// cannot have begun such a task.
func (w *worker) flight(round uint64, batch models.BatchID) (*flight, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	running := w.mu.flights.running()
	for i := range running {
		if f := &running[i]; f.task.number() == round && f.span.Batch == batch {
			w.landing = *f // a copy, because others change the flight under mu
			return &w.landing, nil
		}
	}
	if len(running) == 0 {
		return nil, fmt.Errorf("answer to round %d, but nothing is in flight", round)
	}
	return nil, fmt.Errorf("answer to round %d, batch %d; expected round %d, batch %d",
		round, batch, running[0].task.number(), running[0].span.Batch)
}

// land removes a task from those in flight, and returns the block that it had. It
// clears the stop word first, because the next run with that word would otherwise
// stop immediately. gone says that the worker has forgotten the batch.
func (w *worker) land(f *flight, gone bool, took time.Duration) block {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.outputs.ClearStop(f.word)
	if f.round() != nil {
		w.mu.took = took
	}
	at := slices.IndexFunc(w.mu.flights.list, func(other flight) bool { return other.word == f.word })
	b := w.mu.flights.list[at].block
	w.service.executor.cores.give(w.mu.flights.list[at].on)
	w.mu.flights.remove(at)
	if gone {
		w.mu.forget(f.span.Batch, &w.mu.flights)
	}
	return b
}

// collect leases the outputs of a finished batch. If it returns an error, it has
// leased none of them.
func (w *worker) collect(d *wire.Done, ids []models.QueryID) (queries []QueryOutputs, err error) {
	if len(d.Outputs) != len(ids) {
		return nil, fmt.Errorf("outputs of %d queries, but the batch has %d", len(d.Outputs), len(ids))
	}
	queries = make([]QueryOutputs, len(ids))
	defer func() {
		for i := range queries {
			if err != nil {
				queries[i].Release()
			}
		}
	}()
	for i, outputs := range d.Outputs {
		if err := w.checkOutputs(outputs); err != nil {
			return queries, err
		}
		q := &queries[i]
		*q = QueryOutputs{ID: ids[i], Outputs: make([]models.Tensor, 0, len(outputs)), leases: make([]wire.Lease, 0, len(outputs))}
		for j := range outputs {
			t := &outputs[j]
			lease, data, err := w.outputs.Acquire(t)
			if err != nil {
				return queries, err
			}
			out := t.Tensor
			out.Shape, out.Data = slices.Clone(t.Shape), data
			q.Outputs, q.leases = append(q.Outputs, out), append(q.leases, lease)
		}
	}
	return queries, nil
}

// checkOutputs returns an error if the outputs differ from the model's in number or
// type. Shapes may differ from the declared ones, because ONNX Runtime allows
// that. Types may not: clients receive the outputs with the declared types.
func (w *worker) checkOutputs(outputs []wire.OutputTensor) error {
	if len(outputs) != len(w.info.Outputs) {
		return fmt.Errorf("%d outputs, but the model has %d", len(outputs), len(w.info.Outputs))
	}
	for i := range outputs {
		if want := w.info.Outputs[i].Type.Elem; outputs[i].Type != want {
			return fmt.Errorf("output %d is %s, but the model has %s", i, outputs[i].Type, want)
		}
	}
	return nil
}

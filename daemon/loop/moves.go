package loop

import (
	"errors"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// moves are the batches on their way from a device to another, and what carries them.
type moves struct {
	env     *env
	workers *workers
	calls   *calls
	last    uint64 // number given to the executors
	open    map[uint64]overlap.Move
}

// begin starts the moves that the scheduler wants. The first step of a move
// comes before the next round of the device that the batch leaves, or it would wait for it.
func (m *moves) begin(list []overlap.Move) {
	for _, b := range list {
		m.last++
		number := m.last
		m.open[number] = b
		m.env.devices[b.Device].moving++
		m.env.devices[b.To].moving++
		if err := m.send(number, &b); err != nil {
			m.env.log.Error().Err(err).Str("service", m.workers.services.name(b.Service)).Msg("moving a batch failed")
			m.land(number, models.SpanLost, 0, err)
		}
	}
}

// errGivenUp is why a batch is not moved of which the daemon has given up a query.
var errGivenUp = errors.New("its queries ended")

func (m *moves) send(number uint64, b *overlap.Move) error {
	spec := &m.workers.services.specs[b.Service]
	r := executor.SpanRequest{Span: models.Span{Service: b.Service, Batch: b.Batch, Start: b.Operator, End: spec.Operators, Size: b.Size}}
	for _, id := range m.env.scheduler.Moving(b.Batch) {
		p := m.calls.pending[id]
		if p == nil {
			return errGivenUp
		}
		r.Queries = append(r.Queries, wire.QueryTensors{ID: id, Inputs: p.call.Inputs})
	}
	return m.env.options.Move(number, m.env.devices[b.Device].exec, m.env.devices[b.To].exec, r, travel(spec, b))
}

// travel returns how long the plan has a move take.
func travel(s *models.Service, b *overlap.Move) time.Duration {
	for _, p := range s.Pipelines {
		for _, stage := range p.Stages {
			if stage.End == b.Operator {
				return stage.Move * time.Duration(b.Size)
			}
		}
	}
	return 0
}

// land tells the scheduler the outcome of a move. If the batch is lost, so may the workers be
// between which it moved; else it is the batch that cannot be moved.
func (m *moves) land(number uint64, status models.Status, took time.Duration, err error) {
	b := m.open[number]
	delete(m.open, number)
	gone := false
	for _, at := range []int{b.Device, b.To} {
		d := m.env.devices[at]
		d.moving--
		if state, missing := d.exec.State(b.Service); err != nil && (missing != nil || state.Phase != executor.Ready) {
			gone = true
			m.workers.lost(b.Service, d)
		}
	}
	if err != nil && !gone && !errors.Is(err, executor.ErrExited) {
		m.calls.blame(m.env.scheduler.Moving(b.Batch), err)
	}
	if line := m.workers.services.list[b.Service].line; status == models.SpanDone {
		line.moves++
	} else {
		line.movesLost++
	}
	m.env.emit(observe.Event{Kind: observe.Moved, At: m.env.now(), Move: &b, Took: took, Arrived: status == models.SpanDone, Services: m.workers.services.specs})
	if err := m.env.step(overlap.Event{Kind: overlap.Moved, Move: b, Took: took, Status: status}); err != nil {
		m.env.log.Error().Err(err).Uint64("batch", uint64(b.Batch)).Msg("recording the end of a move failed")
	}
}

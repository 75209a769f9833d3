package loop

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// measuringIDs is where the IDs of rounds, batches and queries begin that
// measure. The scheduler, which counts from 1, never gets there.
const measuringIDs = 1 << 63

// maxMeasuredBytes is the largest input that is made up for measuring.
const maxMeasuredBytes = 1 << 30

// errNotMeasured is returned when a span did not run to its end.
var errNotMeasured = errors.New("a span did not run to its end")

// measurement runs rounds one after another, on inputs of zeros, and times
// each.
type measurement struct {
	exec   Workers
	fleet  *fleet
	lastID uint64
	rounds []models.Group // the groups that are left; the first one runs
	broken bool           // the round that runs was told to stop
	took   []learning.Timing
	held   []heldBatch
	ended  chan struct{} // is closed when no round runs any more, nil if nobody waits
}

// heldBatch is a batch that a worker may hold, and its inputs.
type heldBatch struct {
	service models.ServiceID
	batch   models.BatchID
	offset  int64 // in the service's input arena
}

// active reports whether a round runs.
func (m *measurement) active() bool { return len(m.rounds) > 0 }

func (m *measurement) id() uint64 {
	m.lastID++
	return measuringIDs + m.lastID
}

// start runs the first of the rounds. A batch gets inputs where its spans start
// at operator 0.
func (m *measurement) start(rounds []models.Group) error {
	m.rounds, m.took = rounds, m.took[:0]
	err := m.run()
	if err != nil {
		m.end()
	}
	return err
}

func (m *measurement) run() error {
	spans := m.rounds[0].Spans
	requests := make([]executor.SpanRequest, len(spans))
	for i, s := range spans {
		s.Batch |= measuringIDs
		requests[i].Span = s
		if s.Start > 0 {
			continue
		}
		tensors, err := m.alloc(&s)
		if err != nil {
			return err
		}
		requests[i].Queries = []wire.QueryTensors{{ID: models.QueryID(m.id()), Inputs: tensors}}
	}
	if err := m.exec.Run(m.id(), requests); err != nil {
		return err
	}
	for _, s := range spans {
		m.fleet.members[s.Service].worker.fresh = false
	}
	m.broken = false
	return nil
}

// stop ends the round that runs, if one does, at the next operators.
func (m *measurement) stop() {
	if !m.active() || m.broken {
		return
	}
	m.broken = true
	for _, s := range m.rounds[0].Spans {
		m.exec.Stop(s.Service, s.Batch|measuringIDs)
	}
}

// finish takes in the outcome of the round that runs, and starts the next
// unless queries wait. It reports true when none runs any more: all have, or
// there is an error.
func (m *measurement) finish(o *executor.Outcome, wanted bool) (over bool, err error) {
	t := learning.Timing{Latency: o.Latency(), Device: o.DeviceTime()}
	stopped := false
	for i := range o.Spans {
		s := &o.Spans[i]
		for j := range s.Queries {
			s.Queries[j].Release()
		}
		switch {
		case s.Status == models.SpanStopped && m.broken:
			stopped = true
		case s.Status != models.SpanDone:
			err = errors.Join(fmt.Errorf("%w: %s", errNotMeasured, s.Status), s.Err)
		}
	}
	m.took, m.rounds = append(m.took, t), m.rounds[1:]
	switch {
	case err != nil:
	case stopped:
		err = learning.ErrDisturbed
	case len(m.rounds) == 0:
	case wanted:
		err = learning.ErrDisturbed
	default:
		if err = m.run(); err == nil {
			return false, nil
		}
	}
	m.end()
	return true, err
}

// quit closes ended when no round runs any more.
func (m *measurement) quit(ended chan struct{}) {
	if m.active() {
		m.ended = ended
	} else {
		close(ended)
	}
}

// end gives back what the batches held.
func (m *measurement) end() {
	for _, h := range m.held {
		m.exec.Release(h.service, h.batch)
		_ = m.exec.Arena(h.service).Free(h.offset) // it was allocated there
	}
	m.rounds, m.held = nil, m.held[:0]
	if m.ended != nil {
		close(m.ended)
		m.ended = nil
	}
}

// alloc makes up the inputs of a span's batch.
func (m *measurement) alloc(s *models.Span) ([]wire.Tensor, error) {
	inputs := m.fleet.members[s.Service].worker.info.Inputs
	var tensors []wire.Tensor
	var sum int64
	for i, shape := range models.Fill(inputs, s.Size, s.SeqLen) {
		ty := inputs[i].Type
		bytes := int64(ty.Elem.Bytes())
		if ty.Kind != models.KindTensor || bytes == 0 {
			return nil, fmt.Errorf("input %q is %s, which cannot be made up", inputs[i].Name, ty)
		}
		for _, d := range shape {
			if bytes *= d; bytes > maxMeasuredBytes {
				return nil, fmt.Errorf("input %q of shape %v is too large to be made up", inputs[i].Name, shape)
			}
		}
		tensors = append(tensors, wire.Tensor{Type: ty.Elem, Shape: shape, Offset: sum, Bytes: bytes})
		sum += query.Aligned(bytes)
	}
	offset, data, err := m.exec.Arena(s.Service).Alloc(max(sum, 1))
	if err != nil {
		return nil, fmt.Errorf("memory for inputs of batch size %d: %w", s.Size, err)
	}
	clear(data)
	m.held = append(m.held, heldBatch{s.Service, s.Batch, offset})
	for i := range tensors {
		tensors[i].Offset += offset
	}
	return tensors, nil
}

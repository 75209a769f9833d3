package loop

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// job is groups that run one after another on one device while it is vacant, each of them timed.
type job struct {
	groups []models.Group

	// wanted reports whether there is still a reason to run it.
	wanted func() bool

	// then is what follows, once all groups have run or one has failed. culprit is the service whose
	// span failed, -1 if it was not a single one. After learning.ErrDisturbed the job may run again.
	then func(took []learning.Timing, culprit models.ServiceID, err error)
}

// disturbed has a job end because of queries.
func (j *job) disturbed() { j.then(nil, -1, learning.ErrDisturbed) }

// measuringIDs is where the IDs of rounds, batches and queries begin that
// measure. The scheduler, which counts from 1, never gets there.
const measuringIDs = 1 << 63

// maxMeasuredBytes is the largest input that is made up for measuring.
const maxMeasuredBytes = 1 << 30

// stopPatience is how long a round that measures may take to end once it was told
// to, because queries wait.
const stopPatience = 20 * time.Millisecond

// measurement runs the rounds of a job, on inputs of zeros. Between two of them queries may be
// served: its batches stay with the workers.
type measurement struct {
	env     *env
	workers *workers

	job    *job // whose rounds run, nil for none
	device *device
	rounds []models.Group // those that are left, of which the first may run
	took   []learning.Timing

	running bool
	round   uint64        // the ID of the one that runs
	until   time.Duration // queries wait for it until then at most
	broken  bool          // it was told to stop
	limit   limit         // by when it must have done so, or the others go on without it

	held   []heldBatch
	lastID uint64
	ended  chan struct{} // is closed when no round runs any more, nil if nobody waits
}

// heldBatch is a batch that a worker may hold, and its inputs.
type heldBatch struct {
	device  *device
	service models.ServiceID
	batch   models.BatchID
	inputs  *wire.InputArena
	offset  int64 // in it
	inUse   bool  // by a span that was detached
}

// reads reports whether a worker runs what is measured, or still reads its inputs.
func (m *measurement) reads() bool { return m.running || len(m.held) > 0 }

// waits reports whether a job is interrupted, and its next round is to be run.
func (m *measurement) waits() bool { return m.job != nil && !m.running }

func (m *measurement) id() uint64 {
	m.lastID++
	return measuringIDs + m.lastID
}

// start begins a job on a device.
func (m *measurement) start(j *job, on *device) {
	m.job, m.rounds, m.took, m.device = j, j.groups, m.took[:0], on
}

// run sends the next round. A batch gets inputs where its spans start at operator 0.
func (m *measurement) run() error {
	spans := m.rounds[0].Spans
	requests := make([]executor.SpanRequest, len(spans))
	for i, s := range spans {
		s.Batch |= measuringIDs
		requests[i].Span, requests[i].Whole = s, true
		if s.Start > 0 {
			continue
		}
		tensors, err := m.alloc(&s)
		if err != nil {
			return err
		}
		requests[i].Queries = []wire.QueryTensors{{ID: models.QueryID(m.id()), Inputs: tensors}}
	}
	m.round = m.id()
	if err := m.device.exec.Run(m.round, requests); err != nil {
		return err
	}
	for _, s := range spans {
		m.workers.services.list[s.Service].replicas[m.device.index].on(roundSent)
	}
	m.workers.lend(m.device, true)
	m.running, m.broken = true, false
	return nil
}

// stop ends the round that runs at the next operators, and the job.
func (m *measurement) stop() {
	if m.waits() {
		m.end().disturbed()
	}
	if !m.running || m.broken {
		return
	}
	m.broken, m.limit = true, limit{until: m.env.now() + stopPatience}
	for _, s := range m.rounds[0].Spans {
		m.device.exec.Stop(s.Service, s.Batch|measuringIDs)
	}
}

// finish records the outcome of the round that runs. It returns the job when that is over: all
// rounds have run, or there is an error.
func (m *measurement) finish(o *executor.Outcome) (over *job, err error) {
	m.running = false
	m.workers.lend(m.device, false)
	stopped := false
	for i := range o.Spans {
		s := &o.Spans[i]
		for j := range s.Queries {
			s.Queries[j].Release()
		}
		switch {
		case s.Status == models.SpanOverrun:
			stopped = true
			for j := range m.held {
				m.held[j].inUse = m.held[j].inUse || m.held[j].batch == s.Span.Batch
			}
		case s.Status == models.SpanStopped && m.broken:
			stopped = true
		case s.Status != models.SpanDone:
			err = errors.Join(fmt.Errorf("operators did not run to their end: %s", s.Status), s.Err)
		}
	}
	m.took, m.rounds = append(m.took, learning.Timing{Latency: o.Latency(), Device: o.DeviceTime()}), m.rounds[1:]
	switch {
	case err != nil:
	case stopped, m.broken && len(m.rounds) > 0: // it may have ended before it saw that
		err = learning.ErrDisturbed
	case len(m.rounds) > 0:
		return nil, nil
	}
	return m.end(), err
}

// quit closes ended when no round runs any more.
func (m *measurement) quit(ended chan struct{}) {
	if m.running {
		m.ended = ended
	} else {
		close(ended)
	}
}

// end gives back what the batches of the job held, but for those that workers still use, and
// returns it.
func (m *measurement) end() (over *job) {
	m.giveBack(func(h *heldBatch) bool { return !h.inUse })
	over = m.job
	m.job, m.rounds, m.running = nil, nil, false
	if m.ended != nil {
		close(m.ended)
		m.ended = nil
	}
	return over
}

// giveBack gives back what some of the batches held.
func (m *measurement) giveBack(some func(h *heldBatch) bool) {
	m.held = slices.DeleteFunc(m.held, func(h heldBatch) bool {
		if !some(&h) {
			return false
		}
		h.device.exec.Release(h.service, h.batch)
		_ = h.inputs.Free(h.offset) // it was allocated there
		return true
	})
}

// alloc makes up the inputs of a span's batch.
func (m *measurement) alloc(s *models.Span) ([]models.Tensor, error) {
	of := m.workers.services.list[s.Service]
	inputs := of.info.Inputs
	var tensors []models.Tensor
	var sum int64
	for i, shape := range models.Fill(inputs, s.Size, s.SeqLen) {
		ty := inputs[i].Type
		bytes := int64(ty.Elem.Bytes())
		if ty.Kind != models.KindTensor || bytes == 0 {
			return nil, fmt.Errorf("input %q is %s, for which no data can be generated", inputs[i].Name, ty)
		}
		for _, d := range shape {
			if bytes *= d; bytes > maxMeasuredBytes {
				return nil, fmt.Errorf("input %q of shape %v is too large to generate", inputs[i].Name, shape)
			}
		}
		tensors = append(tensors, models.Tensor{Type: ty.Elem, Shape: shape, Offset: sum, Bytes: bytes})
		sum += query.Aligned(bytes)
	}
	offset, data, err := of.inputs.Alloc(max(sum, 1))
	if err != nil {
		return nil, fmt.Errorf("memory for inputs of batch size %d: %w", s.Size, err)
	}
	clear(data)
	m.held = append(m.held, heldBatch{device: m.device, service: s.Service, batch: s.Batch, inputs: of.inputs, offset: offset})
	for i := range tensors {
		tensors[i].Offset += offset
	}
	return tensors, nil
}

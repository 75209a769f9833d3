package loop

import (
	"errors"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// moves are the batches on their way from a device to another, and what carries them.
type moves struct {
	*core
	fleet *crew
	calls *calls
	last  uint64 // number given to the executors
	open  map[uint64]overlap.Move
}

// begin sends the batches on their way that the scheduler has move. The first step of a move
// comes before the next round of the device that the batch leaves, or it would wait for it.
func (m *moves) begin(list []overlap.Move) {
	for _, b := range slices.Clone(list) { // a worker that is lost has others begin meanwhile
		m.last++
		number := m.last
		m.open[number] = b
		m.devices[b.Device].moving++
		m.devices[b.To].moving++
		if err := m.send(number, &b); err != nil {
			m.Log.Error().Err(err).Str("service", m.fleet.name(b.Service)).Msg("moving a batch failed")
			m.land(number, models.SpanLost, 0, err)
		}
	}
}

// errGivenUp is why a batch is not moved of which the daemon has given up a query.
var errGivenUp = errors.New("its queries ended")

func (m *moves) send(number uint64, b *overlap.Move) error {
	spec := &m.fleet.specs[b.Service]
	r := executor.SpanRequest{Span: models.Span{Service: b.Service, Batch: b.Batch, Start: b.Operator, End: spec.Operators, Size: b.Size}}
	for _, id := range m.scheduler.Moving(b.Batch) {
		p := m.calls.pending[id]
		if p == nil {
			return errGivenUp
		}
		r.Queries = append(r.Queries, wire.QueryTensors{ID: id, Inputs: p.call.Inputs})
	}
	return m.Move(number, m.devices[b.Device].exec, m.devices[b.To].exec, r, travel(spec, b))
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

// landed takes in how a move has ended.
func (m *moves) landed(o *executor.Outcome) {
	m.land(o.Round, o.Spans[0].Status, o.Took, o.Spans[0].Err)
	m.calls.answer()
}

// land tells the scheduler how a move has ended. If the batch is lost, so may the workers be
// between which it moved; else it is the batch that cannot be moved.
func (m *moves) land(number uint64, status models.Status, took time.Duration, err error) {
	b := m.open[number]
	delete(m.open, number)
	gone := false
	for _, at := range []int{b.Device, b.To} {
		d := m.devices[at]
		d.moving--
		if state, missing := d.exec.State(b.Service); err != nil && (missing != nil || state.Phase != executor.Ready) {
			gone = true
			m.fleet.lost(b.Service, d)
		}
	}
	if err != nil && !gone && !errors.Is(err, executor.ErrExited) {
		m.calls.blame(m.scheduler.Moving(b.Batch), err)
	}
	if line := m.fleet.members[b.Service].line; status == models.SpanDone {
		line.moves++
	} else {
		line.movesLost++
	}
	m.emit(observe.Event{Kind: observe.Moved, At: m.Now(), Move: &b, Took: took, Arrived: status == models.SpanDone, Services: m.fleet.specs})
	if err := m.step(overlap.Event{Kind: overlap.Moved, Move: b, Took: took, Status: status}); err != nil {
		m.Log.Error().Err(err).Uint64("batch", uint64(b.Batch)).Msg("recording the end of a move failed")
	}
}

// routes returns the pipelines that the plan of a service has for a model, none where there
// is no plan or no model is loaded yet.
func (f *crew) routes(of *config.Service, model *wire.Info) ([]models.Pipeline, error) {
	if of.Planned == nil || model == nil {
		return nil, nil
	}
	return of.Planned.Routes(f.names(), model.Hash, len(model.Operators))
}

// plan has a service that has just loaded its model go by its plan. Where that is for another
// model its batches stay where they start; a service that is still to join does not.
func (f *crew) plan(s *member) (err error) {
	s.route = route{waits: true}
	if s.route.next, err = f.routes(&s.config, s.info); err == nil {
		return nil
	}
	if s.route.refused = err; s.state == stateJoining {
		return err
	}
	f.Log.Error().Err(err).Str("service", s.config.Name).Msg("plan not followed: batches end on the device on which they start")
	return nil
}

// follow has a service take the pipelines that wait, once the workers are ready that they
// need. Batches that have started keep their own.
func (f *crew) follow(s *member) error {
	missing := func(device int) bool { r := s.replicas[device]; return r == nil || !r.ready }
	for _, p := range s.route.next {
		for _, stage := range p.Stages {
			if slices.ContainsFunc(stage.Devices, missing) {
				return nil
			}
		}
	}
	spec := f.specs[s.service.ID]
	if !s.route.waits || len(spec.Pipelines)+len(s.route.next) == 0 {
		s.route.waits = false
		return nil
	}
	spec.Pipelines = s.route.next
	if err := f.step(overlap.Event{Kind: overlap.Change, Definition: spec}); err != nil {
		return err
	}
	f.specs[s.service.ID] = spec
	s.route = route{since: max(f.Now(), 1)}
	f.Log.Info().Str("service", s.config.Name).Int("pipelines", len(spec.Pipelines)).Msg("plan followed")
	return nil
}

package emulated

import (
	"errors"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// service is one service and the batches that it holds.
type service struct {
	spec    Service
	info    wire.Info
	arena   *wire.InputArena
	outputs *wire.LocalOutputs
	batches map[models.BatchID]*batch
	ended   chan struct{} // closed when it is removed
	shut    bool          // its outputs are closed
	told    chan struct{} // closed when it has no events any more, nil before Start
	leaves  bool          // a Remove runs
	gone    error         // why it runs nothing any more, nil if it may
	phase   executor.Phase
	since   time.Time
	flying  int // spans that were sent and have not ended
}

// batch is what is kept of a batch from its first span on.
type batch struct {
	queries []models.QueryID
	sizes   []int64
}

func newService(spec Service, d latencies) (*service, error) {
	s := &service{spec: spec, info: spec.Model.info(d), batches: make(map[models.BatchID]*batch), since: time.Now(), ended: make(chan struct{})}
	var err error
	if s.arena, err = wire.NewInputArena(spec.InputBytes); err != nil {
		return nil, fmt.Errorf("service %s: %w", spec.Name, err)
	}
	if s.outputs, err = wire.NewLocalOutputs(spec.OutputBytes); err != nil {
		_, cerr := s.arena.Close()
		return nil, errors.Join(fmt.Errorf("service %s: %w", spec.Name, err), cerr)
	}
	return s, nil
}

// check refuses a span that cannot be meant.
func (s *service) check(r *executor.SpanRequest) error {
	span := r.Span
	if span.Start < 0 || span.End <= span.Start || (span.Start == 0) != (len(r.Queries) > 0) {
		return fmt.Errorf("%w: [%d, %d) with %d queries", executor.ErrBadSpan, span.Start, span.End, len(r.Queries))
	}
	for _, q := range r.Queries {
		for i, t := range q.Inputs {
			if !s.arena.Contains(t.Offset, t.Bytes) {
				return fmt.Errorf("%w: input %d of query %d is not in the arena", executor.ErrBadSpan, i, q.ID)
			}
		}
	}
	return nil
}

// open returns the batch of a span, or how the span ends at once.
func (s *service) open(r *executor.SpanRequest) (*batch, models.Status, error) {
	span := r.Span
	switch {
	case s.gone != nil:
		return nil, models.SpanLost, s.gone
	case s.phase != executor.Ready:
		return nil, models.SpanLost, executor.ErrNotReady
	case span.End > s.spec.Model.Operators:
		return nil, models.SpanFailed, fmt.Errorf("%w: [%d, %d) of %d operators",
			executor.ErrBadSpan, span.Start, span.End, s.spec.Model.Operators)
	case span.Start > 0:
		if b := s.batches[span.Batch]; b != nil {
			return b, 0, nil
		}
		return nil, models.SpanLost, executor.ErrBatchLost
	}
	b := &batch{queries: make([]models.QueryID, len(r.Queries)), sizes: make([]int64, len(r.Queries))}
	for i, q := range r.Queries {
		if len(q.Inputs) != 1 || len(q.Inputs[0].Shape) == 0 {
			return nil, models.SpanFailed, fmt.Errorf("%w: query %d has not one input with a batch dimension", executor.ErrBadSpan, q.ID)
		}
		b.queries[i], b.sizes[i] = q.ID, q.Inputs[0].Shape[0]
	}
	s.batches[span.Batch] = b
	return b, 0, nil
}

// answer returns the outputs of a batch that has finished.
func (s *service) answer(b *batch) ([]executor.QueryOutputs, error) {
	all := make([]executor.QueryOutputs, 0, len(b.queries))
	for i, id := range b.queries {
		out, err := s.outputs.Alloc(models.Float32, b.sizes[i], Columns)
		var q executor.QueryOutputs
		if err == nil {
			q, err = executor.Lease(id, s.outputs.Outputs(), []wire.OutputTensor{out})
		}
		if err != nil {
			for j := range all {
				all[j].Release()
			}
			return nil, fmt.Errorf("service %s: outputs of query %d: %w", s.spec.Name, id, err)
		}
		all = append(all, q)
	}
	return all, nil
}

func (s *service) setPhase(p executor.Phase) { s.phase, s.since = p, time.Now() }

func (s *service) close() error {
	inputs, err := s.arena.Close()
	if !s.shut {
		s.shut = true
		err = errors.Join(err, s.outputs.Close())
	}
	if outputs := s.outputs.Outputs().Leases(); inputs > 0 || outputs > 0 {
		err = errors.Join(err, fmt.Errorf("%w: service %s has %d inputs and %d outputs in use", executor.ErrLeak, s.spec.Name, inputs, outputs))
	}
	return err
}

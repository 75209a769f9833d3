package segments

import (
	"fmt"
	"math"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
	"github.com/overlapd/overlapd/stats"
)

// Limits of warming up.
const (
	// warmRuns is how often a batch is run to be timed, after the run that
	// teaches its shapes.
	warmRuns = 3

	// warmSeqLen is the sequence length that is tried where a model leaves
	// it open.
	warmSeqLen = 64

	// maxWarmBytes is the largest input that is made up to warm a model.
	maxWarmBytes = 1 << 30

	// warmBatch is a batch ID that no scheduler gives.
	warmBatch = models.BatchID(math.MaxUint64)
)

// Warm runs a batch of zeros of the given size a few times, so that its memory
// is laid out before the first query comes, and returns how long its operators
// took.
func (m *CutModel) Warm(size int) (wire.Solo, error) { return m.WarmAt(size, warmSeqLen) }

// WarmAt is Warm with a sequence length, which a model that has none ignores.
func (m *CutModel) WarmAt(size, seqLen int) (wire.Solo, error) {
	q, seqLen, err := m.zeroQuery(size, seqLen)
	if err != nil {
		return wire.Solo{}, err
	}
	defer unmapQuery(q)
	times := make([][]int64, 0, warmRuns)
	for run := range 1 + warmRuns {
		if err := m.Start(warmBatch, []worker.Query{q}); err != nil {
			return wire.Solo{}, err
		}
		nanos := make([]int64, len(m.sessions))
		err := m.runTimed(warmBatch, nanos)
		m.Release(warmBatch)
		if err != nil {
			return wire.Solo{}, err
		}
		if run > 0 {
			times = append(times, nanos)
		}
	}
	return wire.Solo{Size: size, SeqLen: seqLen, Nanos: stats.Medians(times)}, nil
}

// runTimed runs a whole batch and writes how long each operator took.
func (m *CutModel) runTimed(id models.BatchID, nanos []int64) error {
	b := m.batches[id]
	known := b.shapes == nil && !m.far
	for p := range nanos {
		if known {
			if _, err := b.frame.program.RunTimed(m.runOptions, p, p+1, nil, nanos); err != nil {
				return err
			}
			continue
		}
		started := time.Now()
		if _, err := m.Run(id, p, p+1, nil); err != nil {
			return err
		}
		if err := m.run.settle(); err != nil { // the last one waits for its outputs otherwise
			return err
		}
		nanos[p] = int64(time.Since(started))
	}
	return nil
}

// zeroQuery makes a query of zeros. Dimensions that are open and neither the
// batch nor the sequence length are taken as 1.
func (m *CutModel) zeroQuery(size, seqLen int) (q worker.Query, _ int, err error) {
	if !models.HasSeqLen(m.model.Inputs) {
		seqLen = 0
	}
	defer func() {
		if err != nil {
			unmapQuery(q)
		}
	}()
	for i, shape := range models.Fill(m.model.Inputs, size, seqLen) {
		in := m.model.Inputs[i]
		bytes := int64(in.Type.Elem.Bytes())
		if in.Type.Kind != models.KindTensor || bytes == 0 {
			return q, 0, fmt.Errorf("%w: input %q is %s, which cannot be made up", wire.ErrInput, in.Name, in.Type)
		}
		for _, d := range shape {
			if d > maxWarmBytes/max(bytes, 1) {
				return q, 0, fmt.Errorf("%w: input %q of shape %v is too large to be made up", wire.ErrInput, in.Name, shape)
			}
			bytes *= d
		}
		view := worker.Tensor{Type: in.Type.Elem, Shape: shape}
		if bytes > 0 {
			data, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
			if err != nil {
				return q, 0, fmt.Errorf("memory to warm the model with: %w", err)
			}
			view.Data = data
		}
		q.Inputs = append(q.Inputs, view)
	}
	return q, seqLen, nil
}

// unmapQuery gives back what zeroQuery made.
func unmapQuery(q worker.Query) {
	for i := range q.Inputs {
		if in := &q.Inputs[i]; in.Data != nil {
			wire.Unmap(in.Data[:cap(in.Data)])
			in.Data = nil
		}
	}
}

package segments

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// Limits of warming up.
const (
	// warmRuns is how often each batch is run and timed, after a first run from which the
	// layout is learned.
	warmRuns = 3

	// warmSeqLen is the sequence length for warming up if the model does not fix it.
	warmSeqLen = 64

	// maxWarmBytes is the largest input that is generated for warming up.
	maxWarmBytes = 1 << 30

	// warmBatch is a batch ID that no scheduler assigns.
	warmBatch = models.BatchID(math.MaxUint64)
)

// maxWarmSizes is the largest maximum batch size for which every batch size is warmed up on
// a GPU, where the first run of a shape selects kernels. For larger maxima, and for models
// with convolutions, only the maximum and the sizes on the ladder are warmed up.
const maxWarmSizes = 32

// warmSizes returns the batch sizes to warm up. On the CPU these are only 1 and the
// largest.
func warmSizes(largest int, far, convolves bool) []int {
	sizes := []int{1}
	for n := 2; n < largest && far; n++ {
		if !convolves && largest <= maxWarmSizes || models.OnLadder(n) {
			sizes = append(sizes, n)
		}
	}
	if largest > 1 {
		sizes = append(sizes, largest)
	}
	return sizes
}

// warmer runs batches of zeros on a model before it serves queries.
type warmer struct {
	model    *CutModel
	progress worker.ProgressFunc

	// solo holds the isolated latencies that warm has measured.
	solo []wire.Solo

	// fault is the error of the first run, if warming up failed there.
	fault string
}

// warm runs batches of several sizes and sequence lengths, on all units and on each share of
// them, and measures their isolated latencies. If the model cannot run on zeros, it is served
// without warming up, and its layouts are learned from the first queries. warm returns only
// errors that end the worker.
func (w *warmer) warm(spec *wire.LoadSpec) error {
	m, far := w.model, w.model.loaded.far
	sizes := warmSizes(max(spec.MaxBatch, 1), far, m.loaded.convolves)
	lengths := []int{warmSeqLen}
	if far && len(spec.WarmSeqLens) > 0 && models.HasSeqLen(m.Model().Inputs) {
		lengths = spec.WarmSeqLens
	}
	kinds := kindsOf(m.loaded.shares.rungs(), lengths, sizes)
	for i, kind := range kinds {
		w.progress("warm", int64(i), int64(len(kinds)))
		solo, err := m.Warm(kind.Size, kind.SeqLen, kind.Share)
		switch {
		case wire.Ends(err):
			return err
		case errors.Is(err, wire.ErrInput):
			return nil // no inputs can be generated for this model
		case errors.Is(err, wire.ErrMemory) && far:
			return fmt.Errorf("%w: a batch of %d does not fit: %w; %s", wire.ErrDeviceFull, kind.Size, err, m.DeviceMemory())
		case err != nil:
			fmt.Fprintf(os.Stderr, "warming up with a batch of %d failed: %v\n", kind.Size, err)
			if len(w.solo) == 0 {
				w.fault = err.Error()
			}
			return nil
		}
		w.solo = append(w.solo, solo)
	}
	return nil
}

// kindsOf returns the kinds of batches with each combination of share, length and size.
func kindsOf(shares, lengths, sizes []int) (kinds []wire.Solo) {
	for _, share := range shares {
		for _, length := range lengths {
			for _, size := range sizes {
				kinds = append(kinds, wire.Solo{Share: share, SeqLen: length, Size: size})
			}
		}
	}
	return kinds
}

// maxThreadBatches limits the number of batches with which warmThread warms up the serving
// thread.
const maxThreadBatches = 32

// warmThread runs batches of zeros on the calling thread: for each size that ran in warm
// and is on the ladder, and for the largest. The thread on which warm ran has ended, and
// with it the state that CUDA's libraries keep for each thread. Without warmThread the
// first query would wait until that state is created again. The CPU has no such state.
// warmThread returns only errors that end the worker.
func (w *warmer) warmThread() error {
	var sizes []wire.Solo // only sizes that the model has run
	for i, solo := range w.solo {
		n, largest := solo.Size, i == len(w.solo)-1 || w.solo[i+1].Size < solo.Size // of this sequence length
		if (models.OnLadder(n) || largest) && len(sizes) < maxThreadBatches {
			sizes = append(sizes, solo)
		}
	}
	for i, solo := range sizes {
		w.progress("warm", int64(i), int64(len(sizes)))
		q, _, err := zeroQuery(w.model.Model(), solo.Size, solo.SeqLen)
		if err == nil {
			err = w.model.runOnce(q)
			unmapQuery(q)
		}
		if wire.Ends(err) {
			return err
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "warming up the serving thread with a batch of %d failed: %v\n", solo.Size, err)
			return nil
		}
	}
	return nil
}

// Warm runs a batch of zeros of the given size and sequence length, 0 for warmSeqLen, several
// times on a share of the units, so that its memory is laid out before the first query
// arrives. It returns the median time of each operator.
func (m *CutModel) Warm(size, seqLen, share int) (wire.Solo, error) {
	q, seqLen, err := zeroQuery(m.Model(), size, cmp.Or(seqLen, warmSeqLen))
	if err != nil {
		return wire.Solo{}, err
	}
	defer unmapQuery(q)
	times := make([][]int64, 0, warmRuns)
	for run := range 1 + warmRuns {
		if err := m.Start(warmBatch, []wire.QueryTensors{q}); err != nil {
			return wire.Solo{}, err
		}
		nanos := make([]int64, len(m.loaded.sessions))
		err := m.runTimed(warmBatch, share, nanos)
		m.Release(warmBatch)
		if err != nil {
			return wire.Solo{}, err
		}
		if run > 0 {
			times = append(times, nanos)
		}
	}
	return wire.Solo{Size: size, SeqLen: seqLen, Share: share, Nanos: stats.Medians(times)}, nil
}

// runOnce runs a batch of one query to its end and releases it.
func (m *CutModel) runOnce(q wire.QueryTensors) error {
	if err := m.Start(warmBatch, []wire.QueryTensors{q}); err != nil {
		return err
	}
	defer m.Release(warmBatch)
	if _, err := m.Run(warmBatch, 0, len(m.loaded.sessions), nil); err != nil {
		return err
	}
	return m.loaded.device.Fault(m.run.collect())
}

// runTimed runs a whole batch and stores the time of each operator in nanos.
func (m *CutModel) runTimed(id models.BatchID, share int, nanos []int64) error {
	b := m.pool.batches[id]
	known := b.shapes == nil && !m.loaded.far
	if known { // no operator, but chooses the sessions
		if _, err := m.RunShare(id, 0, 0, share, nil); err != nil {
			return err
		}
	}
	for p := range nanos {
		if known {
			if _, err := b.frame.program.RunTimed(p, p+1, nil, nanos); err != nil {
				return err
			}
			continue
		}
		started := time.Now()
		if _, err := m.RunShare(id, p, p+1, share, nil); err != nil {
			return err
		}
		if p == len(nanos)-1 { // Run has waited for the device after the other operators
			if err := m.run.collect(); err != nil {
				return err
			}
		}
		nanos[p] = int64(time.Since(started))
	}
	return nil
}

// zeroQuery creates a query of zeros. Open dimensions other than the batch size and the
// sequence length are set to 1. It returns the sequence length, or 0 if the model has none.
func zeroQuery(m *models.Model, size, seqLen int) (q wire.QueryTensors, _ int, err error) {
	if !models.HasSeqLen(m.Inputs) {
		seqLen = 0
	}
	defer func() {
		if err != nil {
			unmapQuery(q)
		}
	}()
	for i, shape := range models.Fill(m.Inputs, size, seqLen) {
		in := m.Inputs[i]
		bytes := int64(in.Type.Elem.Bytes())
		if in.Type.Kind != models.KindTensor || bytes == 0 {
			return q, 0, fmt.Errorf("%w: input %q is %s, for which no data can be generated", wire.ErrInput, in.Name, in.Type)
		}
		for _, d := range shape {
			if d > maxWarmBytes/max(bytes, 1) {
				return q, 0, fmt.Errorf("%w: input %q of shape %v is too large to generate", wire.ErrInput, in.Name, shape)
			}
			bytes *= d
		}
		view := models.Tensor{Type: in.Type.Elem, Shape: shape}
		if bytes > 0 {
			if view.Data, err = wire.MapPrivate(bytes, "for warming up the model"); err != nil {
				return q, 0, err
			}
		}
		q.Inputs = append(q.Inputs, view)
	}
	return q, seqLen, nil
}

// unmapQuery frees the memory of a query that zeroQuery created.
func unmapQuery(q wire.QueryTensors) {
	for i := range q.Inputs {
		if in := &q.Inputs[i]; in.Data != nil {
			wire.Unmap(in.Data[:cap(in.Data)])
			in.Data = nil
		}
	}
}

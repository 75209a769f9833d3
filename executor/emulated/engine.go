package emulated

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// pollTime is for how long an engine looks at the clock before its span ends,
// since waking up takes about as long.
const pollTime = 100 * time.Microsecond

// forever is a sleep that only an alarm ends.
const forever = time.Hour

// engine runs the spans of one service by sleeping.
type engine struct {
	device  *Device
	ctx     context.Context // of the worker
	alarm   alarm
	model   Model
	info    wire.Info
	batches map[models.BatchID]*batch
	spans   []*span // sent and not taken by Run, in order; under the device's lock
}

// batch is the batch sizes of the queries of a batch.
type batch struct{ sizes []int64 }

func (e *engine) Info() wire.Info { return e.info }

func (e *engine) Start(id models.BatchID, queries []worker.Query) error {
	b := &batch{}
	for _, q := range queries {
		if len(q.Inputs) != 1 || len(q.Inputs[0].Shape) == 0 {
			return fmt.Errorf("%w: query %d has not one input with a batch dimension", wire.ErrInput, q.ID)
		}
		b.sizes = append(b.sizes, q.Inputs[0].Shape[0])
	}
	e.batches[id] = b
	return nil
}

// Run sleeps until the span has ended on the device, whose clock is exact: it
// says how long the span took there, and the caller's how long it took to be
// woken.
func (e *engine) Run(id models.BatchID, start, _ int, _ *uint32, out worker.OutputFunc) (worker.Ran, error) {
	ran, err := e.await(id, start)
	if err != nil || ran.Reached < e.model.Operators {
		return ran, err
	}
	b := e.batches[id]
	delete(e.batches, id)
	for i, size := range b.sizes {
		shape := []int64{size, Columns}
		// Nobody ever writes to the arena, so that every output is zeros.
		if _, err := out(i, 0, models.Float32, shape, size*Columns*int64(models.Float32.Bytes())); err != nil {
			return ran, fmt.Errorf("outputs of query %d: %w", i, err)
		}
	}
	return ran, nil
}

// await returns when the span of a batch has ended, or the worker is to end.
func (e *engine) await(id models.BatchID, start int) (worker.Ran, error) {
	var s *span
	for e.ctx.Err() == nil {
		if s == nil {
			s = e.take(id, start)
		}
		left := forever // it is sent, and will be announced
		if s != nil {
			var over bool
			if left, over = e.device.left(s); over {
				return worker.Ran{Reached: s.reached, DeviceTime: s.took}, s.err
			}
		}
		if left > pollTime {
			e.alarm.sleep(left - pollTime)
		} else {
			runtime.Gosched()
		}
	}
	return worker.Ran{}, context.Cause(e.ctx)
}

// take returns the span of a batch, nil if it was not announced yet. Spans
// before it were refused before they came to the engine.
func (e *engine) take(id models.BatchID, start int) *span {
	e.device.mu.Lock()
	defer e.device.mu.Unlock()
	for len(e.spans) > 0 {
		s := e.spans[0]
		e.spans = e.spans[1:]
		if s.on.Batch == id && s.on.Start == start {
			s.arrived = time.Now()
			return s
		}
		s.abandon(time.Now())
	}
	return nil
}

// left returns how long it takes at least until a span ends, and whether it has.
// A span that is over does not change any more.
func (d *Device) left(s *span) (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.advanceLocked(now)
	if s.round.began.IsZero() {
		return d.mu.rounds[0].end().Sub(now), false
	}
	begin := s.round.began
	if s.arrived.After(begin) {
		begin = s.arrived
	}
	left := begin.Add(s.took).Sub(now)
	return left, left <= 0
}

func (e *engine) Release(id models.BatchID) { delete(e.batches, id) }

func (e *engine) Close() error { return nil }

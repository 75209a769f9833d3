package emulated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// seedStream separates the device's random stream from others with the same seed.
// It spells "emulated" in ASCII.
const seedStream = 0x656d756c61746564

// ErrModel is the reason why a service cannot run on the device: the device does
// not know its model.
var ErrModel = errors.New("emulated: the device does not have the model")

// Times models how long operator groups take on a device. Its groups identify a
// model by its position in the device's list, in place of the service ID. A Device
// makes one call at a time, under its lock.
type Times interface {
	// Covers reports whether the latency of a group is known. The other methods
	// are called only for groups that are covered.
	Covers(models.Group) bool

	// Latency returns the median latency of a group.
	Latency(models.Group) time.Duration

	// Sample draws the time of one run of a group.
	Sample(models.Group, *rand.Rand) time.Duration
}

// Device is a modelled device that the workers of several services share. It
// implements [executor.Inside].
type Device struct {
	known []device.ModelInfo
	hash  string

	mu struct {
		sync.Mutex
		times   Times
		random  *rand.Rand
		engines map[models.ServiceID]*engine

		// last is the last round on all units, and beside are the rounds on a share of
		// them that may still run.
		last   round
		beside []round
	}
}

// New returns a device that knows the given models by their names. Their positions
// in the list must be those that times uses. hash identifies the description of the
// device. The same seed and the same rounds draw the same times.
func New(times Times, seed uint64, known []device.ModelInfo, hash string) *Device {
	d := &Device{known: known, hash: hash}
	d.mu.times, d.mu.random = times, rand.New(rand.NewPCG(seed, seedStream))
	d.mu.engines = make(map[models.ServiceID]*engine)
	return d
}

// Serve runs the worker of a service until ctx ends or the daemon closes the
// socket. The model path of the service names a model that the device knows.
func (d *Device) Serve(ctx context.Context, id models.ServiceID, files worker.Files) error {
	e := &engine{device: d, ctx: ctx}
	e.mu.batches = make(map[models.BatchID][]int64)
	defer d.leave(id, e)
	defer context.AfterFunc(ctx, func() { d.ring(e) })()
	return worker.Serve(files, func(spec wire.LoadSpec, _ worker.Memory, _ worker.ProgressFunc) (worker.Engine, error) {
		e.position = slices.IndexFunc(d.known, func(m device.ModelInfo) bool { return m.Name == spec.ModelPath })
		if e.position < 0 {
			var names []string
			for i := range d.known {
				names = append(names, d.known[i].Name)
			}
			return nil, fmt.Errorf("%w: %q; it has %q", ErrModel, spec.ModelPath, names)
		}
		e.model, e.units = d.known[e.position], spec.Units
		e.info = describe(&e.model, e.position, e.units, d.hash, d.latency)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.engines[id] = e
		return e, nil
	})
}

// latency returns the median latency of a group. It takes the lock for each group,
// so that a model that is loading does not delay rounds.
func (d *Device) latency(g models.Group) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.times.Latency(g)
}

// Sent plans a round. The round begins now, or when those before it end; its
// spans end after the time that is drawn for their group. A span with a batch size
// or sequence length that the device does not know fails with [wire.ErrInput].
// Rounds on a share of the units do not wait for each other.
func (d *Device) Sent(spans []models.Span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.mu.engines[spans[0].Service]
	beside := len(spans) == 1 && spans[0].Share > 0 && e != nil && e.units > 1
	r := round{began: d.mu.last.end()}
	d.mu.beside = slices.DeleteFunc(d.mu.beside, func(other round) bool { return !other.end().After(time.Now()) })
	for i := range d.mu.beside {
		if end := d.mu.beside[i].end(); !beside && end.After(r.began) {
			r.began = end
		}
	}
	if now := time.Now(); now.After(r.began) {
		r.began = now
	}
	var group models.Group
	for _, on := range spans {
		e := d.mu.engines[on.Service]
		if e == nil {
			continue // its worker was lost before the round was planned
		}
		on.Service = models.ServiceID(e.position)
		s := &span{on: on, began: r.began, beside: beside, reached: on.End}
		if d.mu.times.Covers(alone(on)) {
			group.Spans = append(group.Spans, s.on)
		} else {
			s.err = fmt.Errorf("%w: the device has no times of %s with batch size %d, sequence length %d", wire.ErrInput, e.model.Name, on.Size, on.SeqLen)
		}
		r.spans = append(r.spans, s)
		e.spans = append(e.spans, s)
		defer e.ringLocked()
	}
	d.drawLocked(&r, group)
	if beside {
		d.mu.beside = append(d.mu.beside, r)
	} else {
		d.mu.last = r
	}
}

// drawLocked draws the time of a round's group and derives the time of each span.
// If the group is not covered, its time is the sum over its spans.
func (d *Device) drawLocked(r *round, group models.Group) {
	var took, longest time.Duration
	covered := len(group.Spans) > 0 && d.mu.times.Covers(group)
	if covered {
		took = max(d.mu.times.Sample(group, d.mu.random), 0)
	}
	for _, on := range group.Spans {
		if !covered {
			took += max(d.mu.times.Sample(alone(on), d.mu.random), 0)
		}
		longest = max(longest, d.mu.times.Latency(alone(on)))
	}
	for _, s := range r.spans {
		if s.err != nil {
			continue
		}
		s.took = took
		if by := d.mu.times.Latency(alone(s.on)); by < longest {
			s.took = time.Duration(float64(took) * (float64(by) / float64(longest)))
		}
	}
}

// alone returns the group of a single span, whose latency is the isolated latency.
func alone(s models.Span) models.Group { return models.Group{Spans: []models.Span{s}} }

// look returns the span of a batch and a lower bound on the time until it ends. If
// that is not positive, the span has ended and no longer changes. s is nil as long
// as the span was not sent. If the end is far away, look also sets the alarm.
func (d *Device) look(e *engine, a *alarm, id models.BatchID, start int) (s *span, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	// Spans ahead of it, unless they run beside others, never reached the engine: the
	// worker's loop rejected them.
	at := 0
	for at < len(e.spans) && (e.spans[at].on.Batch != id || e.spans[at].on.Start != start) {
		if e.spans[at].beside {
			at++
			continue
		}
		e.spans[at].abandon(now)
		e.spans = slices.Delete(e.spans, at, at+1)
	}
	left = forever
	if at < len(e.spans) {
		s = e.spans[at]
		left = s.end().Sub(now)
	}
	switch {
	case left <= 0:
		e.spans = slices.Delete(e.spans, at, at+1)
	case left > pollTime && e.ctx.Err() == nil:
		a.set(left - pollTime)
	}
	return s, left
}

// lend returns an alarm that changes of the engine's spans ring until giveBack.
func (d *Device) lend(e *engine) (*alarm, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(e.idle); n > 0 {
		a := e.idle[n-1]
		e.idle, e.alarms = e.idle[:n-1], append(e.alarms, a)
		return a, nil
	}
	a, err := newAlarm()
	if err == nil {
		e.alarms = append(e.alarms, a)
	}
	return a, err
}

func (d *Device) giveBack(e *engine, a *alarm) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.alarms = slices.DeleteFunc(e.alarms, func(other *alarm) bool { return other == a })
	e.idle = append(e.idle, a)
}

// Runs reports whether a span has not ended by the device's clock.
func (d *Device) Runs(on models.Span) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.spanLocked(on)
	return s != nil && s.end().After(time.Now())
}

// Stopped ends a span at the end of the operator that is running now.
func (d *Device) Stopped(on models.Span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.spanLocked(on); s != nil {
		s.stop(time.Now())
		d.mu.engines[on.Service].ringLocked()
	}
}

// spanLocked returns a span that was sent, or nil if its engine has already
// processed its end.
func (d *Device) spanLocked(on models.Span) *span {
	e := d.mu.engines[on.Service]
	if e == nil {
		return nil
	}
	if i := slices.IndexFunc(e.spans, func(s *span) bool { return s.on.Batch == on.Batch && s.on.Start == on.Start }); i >= 0 {
		return e.spans[i]
	}
	return nil
}

// leave ends the spans of a worker that is gone. The other spans of its rounds keep
// the times that were drawn for them.
func (d *Device) leave(id models.ServiceID, e *engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, a := range e.idle { // no span is awaited any more
		a.close()
	}
	if d.mu.engines[id] == e {
		delete(d.mu.engines, id)
	}
	for _, s := range e.spans {
		s.abandon(time.Now())
	}
}

func (d *Device) ring(e *engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.ringLocked()
}

// round is a round that was sent. began may lie in the future.
type round struct {
	began time.Time
	spans []*span
}

// end returns when the last span ends.
func (r *round) end() time.Time {
	last := r.began
	for _, s := range r.spans {
		if s.end().After(last) {
			last = s.end()
		}
	}
	return last
}

// span is a span of a round, in the device's time.
type span struct {
	// on identifies the model by its position, in place of the service ID.
	on models.Span

	// began is the begin of its round, and beside is set if others run meanwhile.
	began  time.Time
	beside bool

	// err is why the span fails, nil if it runs.
	err     error
	took    time.Duration
	reached int
}

func (s *span) end() time.Time { return s.began.Add(s.took) }

// stop ends a span at the end of the operator that is running now, assuming that
// all of its operators take equally long. A span that has not begun ends at its
// begin, before its first operator.
func (s *span) stop(now time.Time) {
	passed, operators := now.Sub(s.began), time.Duration(s.on.Len())
	switch {
	case s.err != nil || passed >= s.took:
	case passed < 0:
		s.took, s.reached = 0, s.on.Start
	default:
		ran := passed*operators/s.took + 1
		s.took, s.reached = s.took*ran/operators, s.on.Start+int(ran)
	}
}

// abandon ends a span now, because its worker is gone or rejected it.
func (s *span) abandon(now time.Time) { s.took = min(s.took, max(now.Sub(s.began), 0)) }

package emulated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/segments/worker"
)

// seedStream keeps what is drawn here apart from what others draw with the same
// seed.
const seedStream = 0x656d756c61746564

// ErrModel is the reason of a service that the device cannot run: its model is
// not one that the device knows.
var ErrModel = errors.New("emulated: the device does not know the model")

// Times are how long operator groups take on a device. Their spans name models by
// the position that they have there. A Device asks from one goroutine at a time.
type Times interface {
	// Covers reports whether it is known how long a group takes. Nothing else is
	// asked of a group that is not covered.
	Covers(models.Group) bool

	// Latency returns what a group takes in the middle of its runs.
	Latency(models.Group) time.Duration

	// Sample returns what one run of a group takes.
	Sample(models.Group, *rand.Rand) time.Duration
}

// Device is a modelled device that the workers of several services share. It is
// an [executor.Inside].
type Device struct {
	known []device.ModelInfo
	hash  string

	mu struct {
		sync.Mutex
		times   Times
		random  *rand.Rand
		engines map[models.ServiceID]*engine
		last    round
	}
}

// New returns a device on which services may load the given models, by their
// names; their positions in the list are those in times. The hash is that of what
// describes them. The same seed and the same rounds draw the same times.
func New(times Times, seed uint64, known []device.ModelInfo, hash string) *Device {
	d := &Device{known: known, hash: hash}
	d.mu.times, d.mu.random = times, rand.New(rand.NewPCG(seed, seedStream))
	d.mu.engines = make(map[models.ServiceID]*engine)
	return d
}

// Serve is the worker of a service. Its model is the path that the service loads.
func (d *Device) Serve(ctx context.Context, id models.ServiceID, files worker.Files) error {
	a, err := newAlarm()
	if err != nil {
		return err
	}
	e := &engine{device: d, ctx: ctx, alarm: a, batches: make(map[models.BatchID][]int64)}
	defer d.leave(id, e)
	defer context.AfterFunc(ctx, func() { d.ring(e) })()
	return worker.Serve(files, func(spec wire.LoadSpec, _ worker.Memory, _ worker.ProgressFunc) (worker.Engine, error) {
		e.position = slices.IndexFunc(d.known, func(m device.ModelInfo) bool { return m.Name == spec.ModelPath })
		if e.position < 0 {
			var names []string
			for i := range d.known {
				names = append(names, d.known[i].Name)
			}
			return nil, fmt.Errorf("%w: %q; it knows %q", ErrModel, spec.ModelPath, names)
		}
		e.model = d.known[e.position]
		e.info = describe(&e.model, e.position, d.hash, d.latency)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.mu.engines[id] = e
		return e, nil
	})
}

// latency returns what a group takes in the middle of its runs. A model that loads
// has many questions, and asks them between those of the rounds.
func (d *Device) latency(g models.Group) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.times.Latency(g)
}

// Sent plans a round: it begins when the one before it has ended, or now, and its
// spans end after what is drawn for their group.
func (d *Device) Sent(spans []models.Span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := round{began: time.Now()}
	if end := d.mu.last.end(); end.After(r.began) {
		r.began = end
	}
	var group models.Group
	for _, on := range spans {
		e := d.mu.engines[on.Service]
		if e == nil {
			continue // its worker was lost meanwhile
		}
		on.Service = models.ServiceID(e.position)
		s := &span{on: on, began: r.began, reached: on.End}
		if d.mu.times.Covers(alone(on)) {
			group.Spans = append(group.Spans, s.on)
		} else {
			s.err = fmt.Errorf("%w: the device does not know %s with batch size %d, sequence length %d", wire.ErrInput, e.model.Name, on.Size, on.SeqLen)
		}
		r.spans = append(r.spans, s)
		e.spans = append(e.spans, s)
		defer e.ringLocked()
	}
	d.drawLocked(&r, group)
	d.mu.last = r
}

// drawLocked draws how long the group of a round takes, as long as its spans one
// after another if the device does not know, and divides that among them.
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

// alone returns the group of one span.
func alone(s models.Span) models.Group { return models.Group{Spans: []models.Span{s}} }

// look returns the span of a batch and how long it takes at least until it ends.
// It has ended, and does not change any more, if that is not above 0. There is no
// span as long as it was not sent. Far from the end look sets the alarm.
func (d *Device) look(e *engine, id models.BatchID, start int) (s *span, left time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	// Spans before it were refused before they came to the engine.
	for len(e.spans) > 0 && (e.spans[0].on.Batch != id || e.spans[0].on.Start != start) {
		e.spans[0].abandon(now)
		e.spans = e.spans[1:]
	}
	left = forever
	if len(e.spans) > 0 {
		s = e.spans[0]
		left = s.end().Sub(now)
	}
	switch {
	case left <= 0:
		e.spans = e.spans[1:]
	case left > pollTime && e.ctx.Err() == nil:
		e.alarm.set(left - pollTime)
	}
	return s, left
}

// Runs reports whether a span has not ended.
func (d *Device) Runs(on models.Span) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.spanLocked(on)
	return s != nil && s.end().After(time.Now())
}

// Stopped ends a span at the boundary of the operator that runs now.
func (d *Device) Stopped(on models.Span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.spanLocked(on); s != nil {
		s.stop(time.Now())
		d.mu.engines[on.Service].ringLocked()
	}
}

// spanLocked returns a span that was sent, nil if its engine has seen that it ended.
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

// leave ends what a worker that is gone ran. The other spans of its rounds go on
// as if it ran on.
func (d *Device) leave(id models.ServiceID, e *engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e.alarm.close()
	e.alarm = nil
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

// round is a round that was sent.
type round struct {
	began time.Time // or will
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

// span is what becomes of a span of a round, in the times of the device.
type span struct {
	on      models.Span // with the model's position in place of the service
	began   time.Time   // as its round
	err     error       // why it does not run, nil if it does
	took    time.Duration
	reached int
}

func (s *span) end() time.Time { return s.began.Add(s.took) }

// stop ends a span at the boundary of the operator that runs now, as if all of its
// operators took as long. One that has not begun ends when it would.
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

// abandon ends a span that nobody waits for.
func (s *span) abandon(now time.Time) { s.took = min(s.took, max(now.Sub(s.began), 0)) }

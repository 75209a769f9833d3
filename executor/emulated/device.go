package emulated

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
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
		rounds  []*round // oldest first; the first one runs
		free    time.Time
		group   models.Group   // memory of beginLocked
		single  [1]models.Span // memory of aloneLocked
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

// Sent takes in which spans run together.
func (d *Device) Sent(spans []models.Span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &round{sent: time.Now(), spans: make([]span, 0, len(spans))}
	for _, on := range spans {
		e := d.mu.engines[on.Service]
		if e == nil {
			continue // its worker was lost meanwhile
		}
		on.Service = models.ServiceID(e.position)
		r.spans = append(r.spans, span{on: on, engine: e, round: r, reached: on.Start})
		s := &r.spans[len(r.spans)-1]
		if !d.mu.times.Covers(d.aloneLocked(on)) {
			s.err = fmt.Errorf("%w: the device does not know %s with batch size %d, sequence length %d", wire.ErrInput, e.model.Name, on.Size, on.SeqLen)
		}
		e.spans = append(e.spans, s)
	}
	d.mu.rounds = append(d.mu.rounds, r)
	d.advanceLocked(r.sent)
	for i := range r.spans {
		if e := r.spans[i].engine; e.waits {
			e.alarm.set(0)
		}
	}
}

// look returns the span of a batch and how long it takes at least until it ends.
// It has ended, and does not change any more, if that is not above 0. There is no
// span as long as it was not sent. Far from the end look sets the alarm.
func (d *Device) look(e *engine, s *span, id models.BatchID, start int) (*span, time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.advanceLocked(now)
	if s == nil {
		s = e.takeLocked(id, start, now)
	}
	left := forever
	switch e.waits = s == nil; {
	case s == nil:
	case s.round.began.IsZero():
		left = d.mu.rounds[0].end().Sub(now)
	default:
		left = s.round.began.Add(s.took).Sub(now)
	}
	if left > pollTime && e.ctx.Err() == nil {
		e.alarm.set(left - pollTime)
	}
	return s, left
}

// takeLocked returns the span of a batch, nil if it was not sent yet. Spans before
// it were refused before they came to the engine.
func (e *engine) takeLocked(id models.BatchID, start int, now time.Time) *span {
	for len(e.spans) > 0 {
		s := e.spans[0]
		e.spans = e.spans[1:]
		if s.on.Batch == id && s.on.Start == start {
			return s
		}
		s.abandon(now)
	}
	return nil
}

// Stopped ends a span at the boundary of the operator that runs now.
func (d *Device) Stopped(on models.Span) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.mu.engines[on.Service]
	now := time.Now()
	d.advanceLocked(now)
	for _, r := range d.mu.rounds {
		for i := range r.spans {
			if s := &r.spans[i]; s.engine == e && s.on.Batch == on.Batch && s.on.Start == on.Start {
				d.stopLocked(s, now)
			}
		}
	}
	d.ringLocked()
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
	now := time.Now()
	for _, r := range d.mu.rounds {
		for i := range r.spans {
			if s := &r.spans[i]; s.engine == e {
				s.abandon(now)
			}
		}
	}
	d.ringLocked()
}

// ringLocked wakes every engine: a span may end, and a round begin, sooner than
// they know.
func (d *Device) ringLocked() {
	for _, e := range d.mu.engines {
		e.alarm.set(0)
	}
}

func (d *Device) ring(e *engine) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.alarm != nil {
		e.alarm.set(0)
	}
}

// advanceLocked begins the rounds that run by now, each when the one before it
// has ended.
func (d *Device) advanceLocked(now time.Time) {
	for len(d.mu.rounds) > 0 {
		r := d.mu.rounds[0]
		if r.began.IsZero() {
			d.beginLocked(r)
		}
		end := r.end()
		if end.After(now) {
			return
		}
		d.mu.free, d.mu.rounds = end, d.mu.rounds[1:]
	}
}

// round is a round from when it was sent.
type round struct {
	sent  time.Time
	began time.Time // zero until it runs
	spans []span
}

// span is what becomes of a span of a round, in the times of the device.
type span struct {
	on      models.Span // with the model's position in place of the service
	engine  *engine
	round   *round
	err     error         // why it does not run, nil if it does
	took    time.Duration // since the round began
	reached int
	stopped bool
}

func (s *span) runs() bool { return s.err == nil && !s.stopped }

// abandon ends a span that nobody waits for.
func (s *span) abandon(now time.Time) {
	s.stopped = true
	s.took = min(s.took, max(now.Sub(s.round.began), 0))
}

// end returns when the last span ends.
func (r *round) end() time.Time {
	var last time.Duration
	for i := range r.spans {
		last = max(last, r.spans[i].took)
	}
	return r.began.Add(last)
}

// beginLocked draws how long a round takes, and divides that among its spans.
func (d *Device) beginLocked(r *round) {
	r.began = r.sent
	if d.mu.free.After(r.sent) {
		r.began = d.mu.free
	}
	d.mu.group.Spans = d.mu.group.Spans[:0]
	for i := range r.spans {
		if s := &r.spans[i]; s.runs() {
			d.mu.group.Spans = append(d.mu.group.Spans, s.on)
		}
	}
	if len(d.mu.group.Spans) == 0 {
		return
	}
	took := d.drawLocked()
	var longest time.Duration
	if len(d.mu.group.Spans) > 1 {
		for i := range r.spans {
			if s := &r.spans[i]; s.runs() {
				s.took = d.mu.times.Latency(d.aloneLocked(s.on))
				longest = max(longest, s.took)
			}
		}
	}
	for i := range r.spans {
		s := &r.spans[i]
		switch {
		case !s.runs():
			continue
		case s.took < longest:
			s.took = time.Duration(float64(took) * (float64(s.took) / float64(longest)))
		default:
			s.took = took
		}
		s.reached = s.on.End
	}
}

// drawLocked returns what one run of the group takes: if the device does not
// know, as long as its spans one after another.
func (d *Device) drawLocked() (took time.Duration) {
	if d.mu.times.Covers(d.mu.group) {
		return max(d.mu.times.Sample(d.mu.group, d.mu.random), 0)
	}
	for _, s := range d.mu.group.Spans {
		took += max(d.mu.times.Sample(d.aloneLocked(s), d.mu.random), 0)
	}
	return took
}

// aloneLocked returns the group of one span, in memory that the next call uses
// again.
func (d *Device) aloneLocked(s models.Span) models.Group {
	d.mu.single[0] = s
	return models.Group{Spans: d.mu.single[:]}
}

// stopLocked ends a span at the boundary of the operator that runs now, if it
// has not ended.
func (d *Device) stopLocked(s *span, now time.Time) {
	if s.round.began.IsZero() {
		s.stopped = true
		return
	}
	passed := now.Sub(s.round.began)
	if !s.runs() || passed >= s.took {
		return
	}
	whole := max(d.mu.times.Latency(d.aloneLocked(s.on)), 1)
	part := s.on
	reaches := func(operators int) time.Duration {
		part.End = s.on.Start + operators
		return time.Duration(float64(s.took) * (float64(d.mu.times.Latency(d.aloneLocked(part))) / float64(whole)))
	}
	// The first operator that ends from now on; the last one does.
	ran := 1 + sort.Search(s.on.Len()-1, func(i int) bool { return reaches(i+1) >= passed })
	if ran == s.on.Len() {
		return
	}
	s.stopped, s.took, s.reached = true, min(reaches(ran), s.took), s.on.Start+ran
}

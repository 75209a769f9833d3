package emulated

import (
	"sort"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// round is a round from when it was sent.
type round struct {
	outcome executor.Outcome
	sent    time.Time
	began   time.Time // zero until it runs
	spans   []span
}

// span is what becomes of a span of a round, in the times of the device.
type span struct {
	on      models.Span // with the model's position in place of the service
	service *service
	batch   *batch        // nil if it cannot run
	took    time.Duration // from when the round began
	reached int
	stopped bool
}

// begin draws how long the round takes.
func (r *round) begin(e *Executor, now time.Time) {
	r.began = now
	e.group.Spans = e.group.Spans[:0]
	for i := range r.spans {
		if s := &r.spans[i]; s.batch != nil && !s.stopped {
			e.group.Spans = append(e.group.Spans, s.on)
		}
	}
	if len(e.group.Spans) == 0 {
		return
	}
	took := e.draw()
	var longest time.Duration
	if len(e.group.Spans) > 1 {
		for i := range r.spans {
			if s := &r.spans[i]; s.batch != nil && !s.stopped {
				s.took = e.alone(s.on)
				longest = max(longest, s.took)
			}
		}
	}
	for i := range r.spans {
		s := &r.spans[i]
		switch {
		case s.batch == nil || s.stopped:
			continue
		case longest > 0 && s.took < longest:
			s.took = time.Duration(float64(took) * (float64(s.took) / float64(longest)))
		default:
			s.took = took
		}
		s.reached = s.on.End
	}
}

// end returns when the last span ends. The round runs.
func (r *round) end() time.Time {
	var last time.Duration
	for i := range r.spans {
		last = max(last, r.spans[i].took)
	}
	return r.began.Add(last)
}

// stop ends a span at the boundary of the operator that runs now. It reports
// false if the span has ended.
func (r *round) stop(e *Executor, s *span, now time.Time) bool {
	if r.began.IsZero() {
		s.stopped = true
		return true
	}
	passed := now.Sub(r.began)
	if s.stopped || passed >= s.took {
		return false
	}
	whole := e.alone(s.on)
	part := s.on
	reaches := func(operators int) time.Duration {
		part.End = s.on.Start + operators
		return time.Duration(float64(s.took) * (float64(e.alone(part)) / float64(max(whole, 1))))
	}
	// The first operator that ends from now on; the last one does.
	ran := 1 + sort.Search(s.on.Len()-1, func(i int) bool { return reaches(i+1) >= passed })
	if ran == s.on.Len() {
		return true
	}
	s.stopped, s.took, s.reached = true, min(reaches(ran), s.took), s.on.Start+ran
	return true
}

// draw returns what one run of e.group takes: if the device does not know, as
// long as its spans one after another.
func (e *Executor) draw() (took time.Duration) {
	if e.opts.Device.Covers(e.group) {
		return max(e.opts.Device.Sample(e.group, e.random), 0)
	}
	for _, s := range e.group.Spans {
		e.single[0] = s
		took += max(e.opts.Device.Sample(models.Group{Spans: e.single[:]}, e.random), 0)
	}
	return took
}

// alone returns what a span takes alone in the middle of its runs.
func (e *Executor) alone(s models.Span) time.Duration {
	e.single[0] = s
	return e.opts.Device.Latency(models.Group{Spans: e.single[:]})
}

package executor

import (
	"sync"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

const (
	// MaxRounds is how many rounds may run or wait to be received.
	MaxRounds = wire.StopWords / 2

	// MaxOverruns is how many spans may run beside rounds or wait to be received.
	MaxOverruns = 64

	// MaxMoves is how many batches may be on their way from an executor to others, or wait
	// to be received.
	MaxMoves = 32

	// MaxOutcomes is how many outcomes of an executor may wait to be received.
	MaxOutcomes = MaxRounds + MaxOverruns + MaxMoves
)

// SpanRequest is a span to run. Queries are given if, and only if, the batch
// starts with it. Where the spans of a round share the cores, those end early, with
// SpanStopped, that are not at their end when the first is: a core without a span would
// wait for them. Whole keeps a span from that.
type SpanRequest struct {
	Span    models.Span
	Queries []wire.QueryTensors
	Whole   bool
}

// Outcome is what became of a round, of one of its spans that was set apart, or of a move.
type Outcome struct {
	Round   uint64
	Device  int           // of Options
	Took    time.Duration // of a move by its steps; else from Run until the last span ended, or the others were set apart
	Late    time.Duration // the part of Took after the round was over on an emulated device, by that device's clock
	Spans   []SpanOutcome // in the order in which they were given
	Overrun bool          // it is that of a span that was set apart, and now has ended
	Moved   bool          // it is that of a move, under the number that Move was given
}

// SpanOutcome is what became of a span, with what the worker said of it besides.
type SpanOutcome struct {
	models.SpanOutcome
	Err        error          // why, if it is lost or failed
	DeviceTook time.Duration  // in the engine by the device's own clock, 0 if it has none
	Finished   bool           // the batch ran to its end
	Queries    []QueryOutputs // the batch's if it finished, in the order in which they were given

	ended bool // under round.mu
}

// QueryOutputs are the outputs of one query, in the order of the model's
// outputs.
type QueryOutputs struct {
	ID      models.QueryID
	Outputs []Output
}

// Release gives the memory of the outputs back. It must be called once they
// have been read, and nothing of them may be used after it.
func (q *QueryOutputs) Release() {
	for i := range q.Outputs {
		q.Outputs[i].lease.Release()
		q.Outputs[i].Data = nil
	}
}

// Output is one output of one query.
type Output struct {
	Type  models.DataType
	Shape []int64
	Data  []byte // in shared memory, valid until Release
	lease wire.Lease
}

// round waits for its spans. Whoever ends the last one delivers the outcome,
// unless it was delivered without it.
type round struct {
	outcome Outcome
	begin   time.Time
	deliver func(Outcome)
	threads uint8     // of each span, 0 for all that its worker has
	stops   *Executor // to stop the others when the first has ended, nil where all run to their ends
	inside  Inside    // whose clock counts, nil for the host's

	mu    sync.Mutex
	open  int  // spans that have not ended
	apart bool // they were set apart
}

func newRound(id uint64, spans []SpanRequest, deliver func(Outcome)) *round {
	r := &round{
		outcome: Outcome{Round: id, Spans: make([]SpanOutcome, len(spans))},
		begin:   time.Now(), deliver: deliver, open: len(spans),
	}
	for i := range spans {
		r.outcome.Spans[i].Span = spans[i].Span
	}
	return r
}

// threadsOf returns on how many threads each span of a round runs where workers compute
// on so many cores, 0 for all that its worker has: one where there are not two cores for
// each. It depends on nothing else, so that what was measured of a group holds for it.
func threadsOf(spans, cores int) uint8 {
	if spans > 1 && 2*spans > cores && cores > 0 {
		return 1
	}
	return 0
}

// span returns the i-th span, for the one who ends it to fill in.
func (r *round) span(i int) *SpanOutcome { return &r.outcome.Spans[i] }

// end is called once for each span, after it was filled in.
func (r *round) end(i int) {
	r.mu.Lock()
	r.span(i).ended = true
	r.open--
	o := r.outcome
	o.Took, o.Overrun = time.Since(r.begin), r.apart
	if r.apart {
		o.Spans = o.Spans[i : i+1]
	}
	over := r.apart || r.open == 0
	if r.inside != nil && over && !r.apart && o.DeviceTime() > 0 { // else nothing ran
		o.Late = o.Took - o.DeviceTime()
	}
	r.mu.Unlock()
	if !over && r.span(i).Status == models.SpanDone {
		r.stopRest()
	}
	if over {
		r.deliver(o)
	}
}

// stopRest stops all spans of the round early, if they are not to run to their ends and
// one of them has. It is called when one ends and when all are sent.
func (r *round) stopRest() {
	r.mu.Lock()
	ended := false
	for k := range r.outcome.Spans {
		s := &r.outcome.Spans[k] // of which the others are being filled in
		ended = ended || r.stops != nil && s.ended && s.Status == models.SpanDone
	}
	r.mu.Unlock()
	for k := 0; ended && k < len(r.outcome.Spans); k++ {
		if s := r.stops.service(r.span(k).Span.Service); s != nil {
			if w := s.ready(); w != nil {
				w.stopRound(r)
			}
		}
	}
}

// setApart delivers the outcome without the spans that have not ended, each of
// which delivers its own later. It reports false if there is none, if the host only
// has not noticed yet that they have ended, or if they are more than is allowed.
func (r *round) setApart(allow func(spans int) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.apart || !r.runsLocked() || !allow(r.open) {
		return false
	}
	r.apart = true
	o := r.outcome
	o.Took, o.Spans = time.Since(r.begin), make([]SpanOutcome, len(o.Spans))
	for i := range o.Spans {
		if s := r.span(i); s.ended {
			o.Spans[i] = *s
		} else {
			o.Spans[i].Span, o.Spans[i].Status, o.Spans[i].Reached = s.Span, models.SpanOverrun, s.Span.Start
		}
	}
	r.deliver(o) // before that of a span which ends right now
	return true
}

// runsLocked reports whether a span has not ended, on an emulated device by its clock.
func (r *round) runsLocked() bool {
	for i := range r.outcome.Spans {
		s := &r.outcome.Spans[i] // which is being filled in, if it has not ended
		if !s.ended && (r.inside == nil || r.inside.Runs(s.Span)) {
			return true
		}
	}
	return false
}

// fail ends a span that did not run to its end.
func (r *round) fail(i int, status models.Status, err error) {
	s := r.span(i)
	s.Status, s.Err, s.Reached = status, err, s.Span.Start
	r.end(i)
}

// Latency is the latency of the round's group as predictors see it. This is its
// one definition: what is measured to train a predictor, what a prediction is
// compared with while serving, and what metrics say of predictions all go by it.
//
// Of several spans it is the time from Run until the last of them has ended, by
// the host's clock: they run beside each other, so the longest decides, and
// sending them and waking up happen once, however many there are. Of one span it
// is its time in the engine, by the host's clock too: from before its inputs are
// copied until the device has been waited for. What sending one span takes is
// the same for each, and known to the scheduler as the time between rounds.
//
// The device's own clock is no part of it: a deadline is kept by the host's. See
// [Outcome.DeviceTime] for what it says. On an emulated device the latency is the
// time that the device drew: how late the host saw the end is no property of the device.
func (o *Outcome) Latency() time.Duration {
	if len(o.Spans) == 1 {
		return o.Spans[0].Took
	}
	return o.Took - o.Late
}

// DeviceTime is how long the device worked on the round's group by its own clock,
// 0 if it has none. Of several spans it is that of the longest: each worker
// measures with events of its own, whose zeros are not comparable. What it falls
// short of Latency went into copying, launching and waking up.
func (o *Outcome) DeviceTime() (longest time.Duration) {
	for i := range o.Spans {
		longest = max(longest, o.Spans[i].DeviceTook)
	}
	return longest
}

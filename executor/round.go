package executor

import (
	"sync"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

const (
	// MaxRounds limits the rounds that are running or whose outcome has not been
	// received. Each run needs a stop word, and moves need some as well.
	MaxRounds = wire.StopWords / 2

	// MaxOverruns limits the detached spans that run alongside rounds or whose
	// outcome has not been received.
	MaxOverruns = 64

	// MaxMoves limits the batches that are moving from one executor to others, or
	// whose outcome has not been received.
	MaxMoves = 32

	// MaxOutcomes is the capacity needed for the outcomes of one executor.
	MaxOutcomes = MaxRounds + MaxOverruns + MaxMoves
)

// SpanRequest is a span to run. It has Queries if and only if the batch starts
// with it.
//
// If the spans of a round share the cores, the end of the first one stops the
// others early, with SpanStopped, because a core without a span would stay idle
// until they end. Whole exempts the round of a span from that.
type SpanRequest struct {
	Span    models.Span
	Queries []wire.QueryTensors
	Whole   bool
}

// Outcome is the result of a round, of a detached span, or of a move.
type Outcome struct {
	Round uint64

	// Device is the one of Options.
	Device int

	// Took is the time from Run until the last span ended or the others were
	// detached. For a move it is the time of its steps.
	Took time.Duration

	// Late is the part of Took after the round was over by the clock of an
	// emulated device.
	Late time.Duration

	// Spans are in the order in which they were given to Run.
	Spans []SpanOutcome

	// Overrun marks the outcome of a detached span that has now ended.
	Overrun bool

	// Moved marks the outcome of a move; Round is the ID that Move was given.
	Moved bool
}

// SpanOutcome is the result of a span, with what its worker reported.
type SpanOutcome struct {
	models.SpanOutcome

	// Err is why the span is lost or failed.
	Err error

	// DeviceTook is its time in the engine by the device's clock, 0 if the device
	// has none.
	DeviceTook time.Duration

	// Finished is set if the batch ran to its end. Queries then holds the outputs
	// of the batch, in the order in which the queries were given.
	Finished bool
	Queries  []QueryOutputs

	// ended is guarded by round.mu.
	ended bool
}

// QueryOutputs are the outputs of one query, in the order of the model's
// outputs. Their data lie in shared memory and are valid until Release.
type QueryOutputs struct {
	ID      models.QueryID
	Outputs []models.Tensor
	leases  []wire.Lease
}

// Release frees the memory of the outputs. It must be called once they have been
// read; their data must not be used afterwards.
func (q *QueryOutputs) Release() {
	for i := range q.leases {
		q.leases[i].Release()
	}
	for i := range q.Outputs {
		q.Outputs[i].Data = nil
	}
	q.leases = q.leases[:0]
}

// round collects the results of its spans. The end of the last span delivers the
// outcome, unless it was delivered before because spans were detached.
type round struct {
	outcome Outcome
	begin   time.Time
	deliver func(Outcome)

	// message is reused for each span, which Run sends one after another.
	message wire.Run

	// share is the share of the units for each span, 0 for its own.
	share int

	// stops is set if the end of the first span stops the others.
	stops *Executor

	// inside, if set, has the clock that counts in place of the host's.
	inside Inside

	mu sync.Mutex

	// open is how many spans have not ended.
	open int

	// apart is set once those were detached.
	apart bool
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

// shareOf returns the share of the units for each span of a round if the workers
// compute on the given number of cores; 0 means that of the span itself. It is
// one if there are fewer than two cores for each span. It depends on nothing else,
// so a measured latency of a group holds for every later run of that group.
func shareOf(spans, cores int) int {
	if spans > 1 && 2*spans > cores && cores > 0 {
		return 1
	}
	return 0
}

// span returns the i-th span. Only the goroutine that ends the span may fill it
// in, without holding mu, until it calls end.
func (r *round) span(i int) *SpanOutcome { return &r.outcome.Spans[i] }

// end is called exactly once for each span, after it was filled in. It delivers
// the outcome if this was the last open span, or a detached one.
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
	if r.inside != nil && over && !r.apart && o.DeviceTime() > 0 { // without device time nothing ran
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

// stopRest stops the round's other spans once one has run to its end, if the round
// asks for that. It is called when a span ends, and again after all were sent,
// because the first may end before the last is sent.
func (r *round) stopRest() {
	r.mu.Lock()
	ended := false
	for k := range r.outcome.Spans {
		s := &r.outcome.Spans[k] // other fields of open spans are being filled in; ended is not
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

// setApart delivers the outcome without the spans that have not ended; each of
// those delivers its own later. It returns false if there is none, if the host
// merely has not noticed their end yet, or if allow rejects their number.
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
	r.deliver(o) // under mu, so that it precedes the outcome of a span that ends right now
	return true
}

// runsLocked reports whether a span has not ended, by the clock of an emulated
// device if there is one.
func (r *round) runsLocked() bool {
	for i := range r.outcome.Spans {
		s := &r.outcome.Spans[i] // if it has not ended, its other fields are being filled in
		if !s.ended && (r.inside == nil || r.inside.Runs(s.Span)) {
			return true
		}
	}
	return false
}

func (r *round) number() uint64 { return r.outcome.Round }

func (r *round) lost(f *flight, status models.Status, err error) { r.fail(f.index, status, err) }

// fail ends a span that did not complete. No operator of it counts as run.
func (r *round) fail(i int, status models.Status, err error) {
	s := r.span(i)
	s.Status, s.Err, s.Reached = status, err, s.Span.Start
	r.end(i)
}

// Latency returns the latency of the round's group. This is its only definition:
// training data for predictors, the comparison of predictions with reality, and
// the metrics about predictions all use it.
//
// For several spans it is the time from Run until the last of them has ended, by
// the host's clock. The spans overlap, so the longest decides, and the costs of
// sending and of waking up occur once. For one span it is the span's time in the
// engine, also by the host's clock: from before its inputs are copied until the
// device has completed. The cost of sending one span is the same for all, and the
// scheduler accounts for it as the time between rounds.
//
// The device's own clock does not count, because deadlines are kept by the host's;
// see [Outcome.DeviceTime]. On an emulated device the latency is the time that the
// device drew: how late the host noticed the end is no property of the device.
func (o *Outcome) Latency() time.Duration {
	if len(o.Spans) == 1 {
		return o.Spans[0].Took
	}
	return o.Took - o.Late
}

// DeviceTime returns how long the device worked on the round's group by its own
// clock, 0 if it has none. For several spans it is the longest of their times,
// because each worker's events have a different zero. The difference to Latency is
// the time for copying, launching and waking up.
func (o *Outcome) DeviceTime() (longest time.Duration) {
	for i := range o.Spans {
		longest = max(longest, o.Spans[i].DeviceTook)
	}
	return longest
}

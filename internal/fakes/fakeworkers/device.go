package fakeworkers

import (
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// Device says what rounds take: each span so much for each operator and
// query, a group its longest span at least and the sum of them times overlap
// otherwise.
type Device struct {
	Operator time.Duration // of service 0; service 1 takes twice as long, and so on
	Overlap  float64
	Sending  time.Duration // what a round takes besides its spans
	Clock    float64       // of what a span takes, how much by the device's own clock; 0 for none
}

// Span returns what a span takes.
func (d *Device) Span(s models.Span) time.Duration {
	return d.Operator * time.Duration((s.End-s.Start)*s.Size*(1+int(s.Service)))
}

// Group returns what a group takes.
func (d *Device) Group(spans []executor.SpanOutcome) time.Duration {
	var sum, longest time.Duration
	for i := range spans {
		took := d.Span(spans[i].Span)
		sum, longest = sum+took, max(longest, took)
	}
	return max(longest, time.Duration(d.Overlap*float64(sum)))
}

// Calm is the device that models have that nobody measures.
var Calm = Device{Operator: 100 * time.Microsecond, Overlap: 0.6}

// RunsOn gives the workers a device that ends every round at once, or takes it
// away.
func (f *Workers) RunsOn(d *Device) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.device = d
	if o := f.mu.flight; d != nil && o != nil {
		f.mu.flight.end(models.SpanDone)
	}
}

// FailOn sets whether the model of a service fails on queries of a size.
func (f *Workers) FailOn(service, size int, fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.fails[input{service, size}] = fails
}

// Lose lets the model of a service not load.
func (f *Workers) Lose(service int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.workers[service].bad = true
}

// Takes sets the input of a service's model.
func (f *Workers) Takes(service int, input models.TensorSpec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.workers[service].input = &input
}

// mood is how workers are.
type mood uint8

// What workers may be like.
const (
	Deaf     mood = iota // they run on when told to stop
	Endless              // their rounds may be ended without the spans that still run
	Refusing             // they take no round
	Full                 // no service can be added
	moods
)

// Be turns a mood of the workers on or off. By default rounds end with all of their spans, even if a
// busy machine makes them take longer than predicted.
func (f *Workers) Be(m mood, is bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.is[m] = is
}

// Move takes a batch from its worker to that of another device. It returns the queries of the
// batch, and a function that lands it, or loses it where one of the two workers is gone by then.
func (f *Workers) Move(number uint64, s models.Span, to *Workers) (queries []models.QueryID, land func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if b := f.mu.workers[s.Service].batches[s.Batch]; b == nil || b.next != s.Start {
		f.t.Errorf("%v moves, its worker holds %+v", s, b)
	} else {
		queries = b.queries
	}
	return queries, func() {
		f.mu.Lock()
		b := f.mu.workers[s.Service].batches[s.Batch]
		delete(f.mu.workers[s.Service].batches, s.Batch)
		f.mu.Unlock()
		o := executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: s, Status: models.SpanDone, Reached: s.Start}}
		to.mu.Lock()
		if w := &to.mu.workers[s.Service]; b == nil || !w.ready {
			o.Status, o.Err = models.SpanLost, executor.ErrExited
		} else {
			w.batches[s.Batch] = b
		}
		to.mu.Unlock()
		f.out <- executor.Outcome{Round: number, Device: f.index, Moved: true, Took: time.Millisecond, Spans: []executor.SpanOutcome{o}}
	}
}

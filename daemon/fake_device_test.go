package daemon

import (
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// fakeDevice says what rounds take: each span so much for each operator and
// query, a group its longest span at least and the sum of them times overlap
// otherwise.
type fakeDevice struct {
	operator time.Duration // of service 0; service 1 takes twice as long, and so on
	overlap  float64
	sending  time.Duration // what a round takes besides its spans
	clock    float64       // of what a span takes, how much by the device's own clock; 0 for none
}

func (d *fakeDevice) span(s models.Span) time.Duration {
	return d.operator * time.Duration((s.End-s.Start)*s.Size*(1+int(s.Service)))
}

func (d *fakeDevice) group(spans []executor.SpanOutcome) time.Duration {
	var sum, longest time.Duration
	for i := range spans {
		took := d.span(spans[i].Span)
		sum, longest = sum+took, max(longest, took)
	}
	return max(longest, time.Duration(d.overlap*float64(sum)))
}

// calm is the device that models have that nobody measures.
var calm = fakeDevice{operator: 100 * time.Microsecond, overlap: 0.6}

// runsOn gives the workers a device that ends every round at once, or takes it
// away.
func (f *fakeWorkers) runsOn(d *fakeDevice) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.device = d
	if o := f.mu.flight; d != nil && o != nil {
		f.endLocked(models.SpanDone)
	}
}

// failOn lets a model fail, or not any more.
func (f *fakeWorkers) failOn(service, size int, fails bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.fails[fakeInput{service, size}] = fails
}

// refuse makes the executor take no round, or take them again.
func (f *fakeWorkers) refuse(refuses bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.refuses = refuses
}

func (f *fakeWorkers) isBad(service int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.workers[service].bad
}

// lose lets the model of a service not load.
func (f *fakeWorkers) lose(service int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.workers[service].bad = true
}

// takes sets the input of a service's model.
func (f *fakeWorkers) takes(service int, input models.TensorSpec) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.workers[service].input = &input
}

// deafen lets workers run on when told to stop.
func (f *fakeWorkers) deafen() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.deaf = true
}

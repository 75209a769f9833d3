package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// reasons stand for the lists of a daemon, which are no longer.
var reasons = []string{"none", "queue_full", "deadline_passed", "cannot_finish", "worker_lost", "model_failed", "cancelled", "draining"}

// counts returns a count of each reason.
func counts(names ...string) (all []Count) {
	for i, r := range names {
		all = append(all, Count{Reason: r, N: uint64(i + 1)})
	}
	return all
}

// full is a snapshot of so many services in which everything has happened.
func full(services int) *Snapshot {
	s := &Snapshot{
		Version: "1.2.3", Policy: "overlap", Record: NewRecord(services), Age: time.Millisecond,
		Scheduler: Scheduler{Rounds: 7, Busy: time.Second, Made: 5, Kept: 3, Overturned: 2, InboxLimit: 8, Predictor: true, Fallbacks: counts(reasons[:4]...), Unknown: 1},
		GPUs:      []GPU{{UUID: "GPU-1", Utilization: 0.41, MemoryTotalBytes: 80e9, MemoryUsedBytes: 1e9, PowerWatts: 300, PowerLimitWatts: 700}},
	}
	s.Record.wake(time.Second)
	s.Record.rest(3 * time.Second)
	for i := range services {
		s.Services = append(s.Services, Service{
			Name: fmt.Sprint("s", i), Slot: i, Ready: true, Target: time.Second, Queued: 3, QueueLimit: 9, OldestAge: 2 * time.Second,
			Accepted: 100, Finished: 60, Late: 5, Refused: counts(reasons...), Dropped: counts(reasons...), Failed: counts(reasons...),
			IntermediateBytes: 4096,
			Clocks:            Clocks{Spans: 30, Engine: 3 * time.Second, Device: 2 * time.Second},
			Requests:          Requests{Success: 60, Queries: 120, Executions: 30, Failure: counts("REJECTED", "CANCELED", "BACKEND", "OTHER"), Request: 1500 * time.Microsecond},
		})
		s.Record.answer(i, finished{Latency: 500 * time.Millisecond, Queue: time.Millisecond, Target: time.Second})
	}
	return s
}

// text is what a scrape of a snapshot is answered with.
func text(t testing.TB, s *Snapshot) string {
	t.Helper()
	b, err := NewExporter(func() *Snapshot { return s }).Text()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// parse reads a text as Prometheus does.
func parse(t testing.TB, text string) map[string]*dto.MetricFamily {
	t.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	all, err := p.TextToMetricFamilies(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// says fails the test unless a text has all of the lines.
func says(t *testing.T, text string, lines ...string) {
	t.Helper()
	for _, line := range lines {
		if !strings.Contains(text, "\n"+line+"\n") {
			t.Errorf("there is no line %q", line)
		}
	}
}

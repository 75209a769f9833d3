package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/overlap"
)

// counts returns a count of each reason: 1 of the first, 2 of the next, and so on.
func counts() (all [overlap.ReasonCount]uint64) {
	for r := range all {
		all[r] = uint64(r + 1)
	}
	return all
}

// requests are counts of requests of every kind.
func requests() query.Counts {
	c := query.NewService(0, "s").Stats.Counts() // with each reason to fail
	c.Queries, c.Executions = 120, 30
	c.Success.Count, c.Success.Took = 60, 1500*time.Microsecond
	c.Spans.Count, c.Spans.Took = 30, 3*time.Second
	c.Device.Count, c.Device.Took = 30, 2*time.Second
	for i := range c.Failures {
		c.Failures[i].Count = uint64(i + 1)
	}
	return c
}

// full is a snapshot of so many services in which everything has happened.
func full(services int) *Snapshot {
	s := &Snapshot{
		Version: "1.2.3", Policy: "overlap", Record: newRecord(services), Age: time.Millisecond,
		Scheduler: Scheduler{Rounds: 7, Busy: time.Second, Made: 5, Kept: 3, Overturned: 2, InboxLimit: 8, Predictor: true, Fallbacks: map[string]uint64{"none": 1, "queue full": 2, "c": 3, "d": 4}, Unknown: 1},
		GPUs:      []GPU{{UUID: "GPU-1", Utilization: 0.41, MemoryTotalBytes: 80e9, MemoryUsedBytes: 1e9, PowerWatts: 300, PowerLimitWatts: 700}},
	}
	s.Record.wake(time.Second)
	s.Record.rest(3 * time.Second)
	for i := range services {
		s.Services = append(s.Services, Service{
			Name: fmt.Sprint("s", i), Slot: i, Ready: true, Target: time.Second, QueueLimit: 9, OldestAge: 2 * time.Second,
			Counted:           overlap.ServiceMetrics{Queued: 3, Arrived: 100, Finished: 60, Late: 5, Refused: counts(), Dropped: counts(), Failed: counts()},
			IntermediateBytes: 4096,
			Requests:          requests(),
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

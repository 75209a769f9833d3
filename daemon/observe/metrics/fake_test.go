package metrics

import (
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// labels are all that a metric may have.
var labels = []string{"service", "model", "version", "reason", "policy", "gpu_uuid", "device"}

// kinds are the types as Prometheus and docs/metrics.md have them.
var kinds = map[kind]string{counter: "counter", gauge: "gauge", histogram: "histogram"}

// counts returns a count of each reason: 1 of the first, 2 of the next, and so on.
func counts() map[string]uint64 {
	all := map[string]uint64{}
	for r := range overlap.ReasonCount {
		all[r.String()] = uint64(r + 1)
	}
	return all
}

// requests are counts of requests of every kind.
func requests() query.Counts {
	c := query.NewService(0, "s").Stats.Counts() // with each reason to fail
	c.Queries, c.Executions = 120, 30
	c.Success.Count, c.Success.Took = 60, 1500*time.Microsecond
	c.Spans.Count = 30
	for i := range c.Failures {
		c.Failures[i].Count = uint64(i + 1)
	}
	return c
}

// told is one scheduler, with its Recorder, in which everything has happened.
type told struct {
	status   *status.Status
	recorder *Recorder
}

// full is a scheduler of so many services.
func full(services int) told {
	s := &status.Status{
		Rounds: 7, BusySeconds: 1, Age: time.Millisecond, InboxLimit: 8,
		Predictor: status.Predictor{File: new(status.File), Unknown: 1, Fallbacks: status.Nonzero{"none": 1, "queue full": 2, "c": 3, "d": 4}},
	}
	s.Plans.Made, s.Plans.Kept, s.Plans.Overturned = 5, 3, 2
	g := cuda.Sample{UUID: "GPU-1"}
	g.Utilization.Known, g.Utilization.Value.GPU = true, 41
	g.Memory.Known, g.Memory.Value.Total, g.Memory.Value.Used = true, 80e9, 1e9
	g.Power, g.PowerLimit = cuda.Reading[float64]{Known: true, Value: 300}, cuda.Reading[float64]{Known: true, Value: 700}
	s.GPU = []gpu.Status{{Sample: &g}}
	s.Pool = []status.Device{{Name: "left"}}
	s.Load = status.Load{DevicesDemanded: 0.5, BadRate: 0.25, Devices: []status.DeviceLoad{{Name: "left", Idle: 0.75}}, Services: map[string]status.ServiceLoad{}}
	var names []string
	for i := range services {
		name := fmt.Sprint("s", i)
		names = append(names, name)
		s.Load.Services[name] = status.ServiceLoad{Headroom: 0.3, BadRate: 0.125, DeviceTotal: 1500 * ms}
		s.Services = append(s.Services, status.Service{
			Name: name, Version: "1", ID: models.ServiceID(i), Ready: true, TargetMS: 1e3, Accuracy: 76, QueueLimit: 9, Requests: requests(), OldestAge: 2 * time.Second, IntermediateBytes: 4096, EngineSeconds: 3, DeviceSeconds: 2,
			Replicas: []status.Replica{{Device: "left", Ready: true}},
			Queued:   3, Arrived: 100, Finished: 60, Late: 5, Refused: counts(), Dropped: counts(), Failed: counts(),
		})
	}
	r := NewRecorder(names)
	r.Observe(&observe.Event{Kind: observe.Woke, At: time.Second})
	r.Observe(&observe.Event{Kind: observe.Rested, At: 3 * time.Second})
	for i := range services {
		answer(r, models.ServiceID(i), 500*time.Millisecond, time.Millisecond, time.Second)
	}
	return told{s, r}
}

// answer has a query finish.
func answer(r *Recorder, service models.ServiceID, latency, queue, target time.Duration) {
	r.Observe(&observe.Event{Kind: observe.Answered, Target: target, Answer: &overlap.Answer{
		Service: service, Result: overlap.Finished, Queue: queue, Started: queue, At: latency,
	}})
}

// exporterOf returns what answers scrapes of a scheduler.
func exporterOf(of told) *exporter {
	return NewExporter("1.2.3", "overlap", of.recorder, func() Scrape {
		of.recorder.Observe(&observe.Event{Kind: observe.Published})
		return Scrape{Status: of.status}
	})
}

// text is what a scrape of a scheduler is answered with.
func text(t testing.TB, of told) string {
	t.Helper()
	b, err := exporterOf(of).Text()
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

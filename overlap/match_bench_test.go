package overlap

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// BenchmarkMatch is what a query costs a scheduler alone that matches batches with
// devices (Symphony, figure 13): its arrival, its part of a batch and its answer, by
// policy, devices and services, which are all asked alike, at half of what the devices
// could serve one query after another.
func BenchmarkMatch(b *testing.B) {
	sizes := []struct{ devices, services int }{{8, 10}, {64, 10}, {1024, 10}, {64, 100}, {64, 1000}, {64, 10_000}}
	for _, policy := range []string{"deferred", "eager", "largest", "flex"} {
		for _, n := range sizes {
			b.Run(fmt.Sprintf("%s/%ddevices/%dservices", policy, n.devices, n.services), func(b *testing.B) {
				newStream(b, policy, n.devices, n.services).run()
			})
		}
	}
}

// stream drives a scheduler with queries that come at a constant rate.
type stream struct {
	*testing.B
	s        *Scheduler
	services int
	every    time.Duration
	now      time.Duration
	ends     heap[ending]
	outcome  models.Outcome
}

// ending is when a device ends its round.
type ending struct {
	at     time.Duration
	device int
}

func newStream(b *testing.B, policy string, devices, services int) *stream {
	p := &affine{grow: time.Millisecond, base: 5 * time.Millisecond}
	c := Config{Policy: policy, Devices: slices.Repeat([]Predictor{p}, devices)}
	for i := range services {
		c.Services = append(c.Services, models.Service{
			ID: models.ServiceID(i), Name: strconv.Itoa(i), Operators: 1, QoSTarget: 100 * time.Millisecond, QueueLimit: 1 << 16, MaxBatch: 32,
		})
	}
	s, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	w := &stream{B: b, s: s, services: services, every: 12 * time.Millisecond / time.Duration(devices)}
	w.ends.before = func(a, b ending) bool { return a.at < b.at || a.at == b.at && a.device < b.device }
	return w
}

func (w *stream) run() {
	id, next := models.QueryID(0), time.Duration(0)
	finished := 0
	w.ReportAllocs()
	for w.Loop() {
		for w.now = next; w.ends.len() > 0 && w.ends.top().at <= w.now; {
			w.finish(w.ends.pop())
		}
		id++
		service := models.ServiceID(uint64(id) * 7919 % uint64(w.services))
		if err := w.s.Arrive(w.now, models.Query{ID: id, Service: service, Size: 1, Arrival: w.now, Deadline: w.now + 100*time.Millisecond}); err != nil {
			w.Fatal(err)
		}
		w.decide()
		finished += len(w.s.Answers())
		w.s.Released()
		w.s.Stops()
		next += w.every
	}
	w.ReportMetric(float64(id)/w.Elapsed().Seconds(), "queries/s")
	w.ReportMetric(float64(id)/float64(max(w.s.rounds, 1)), "queries/round")
}

func (w *stream) finish(e ending) {
	v := w.s.devices[e.device]
	w.outcome.Round, w.outcome.Device, w.outcome.Took = v.round.Number, e.device, e.at-v.round.Start
	w.outcome.Spans = append(w.outcome.Spans[:0], models.SpanOutcome{Span: v.round.Spans[0], Reached: 1})
	if err := w.s.Finish(w.now, w.outcome); err != nil {
		w.Fatal(err)
	}
	w.decide()
}

func (w *stream) decide() {
	for {
		r, ok := w.s.Next(w.now)
		if !ok {
			return
		}
		w.ends.push(ending{w.now + r.Predicted.Latency, r.Device})
	}
}

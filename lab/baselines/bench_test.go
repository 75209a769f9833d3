package baselines

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// BenchmarkMatch measures what a query costs the scheduler (Symphony, figure 13): its
// arrival, its part of a batch and its answer. The load is half of what the devices could
// serve one query after another.
func BenchmarkMatch(b *testing.B) {
	for _, policy := range []string{"deferred", "eager", "flex"} {
		for _, n := range []struct{ devices, services int }{{8, 10}, {64, 10}, {64, 100}} {
			b.Run(fmt.Sprintf("%s/%ddevices/%dservices", policy, n.devices, n.services), func(b *testing.B) {
				match(b, policy, n.devices, n.services)
			})
		}
	}
}

func match(b *testing.B, policy string, devices, services int) {
	p := &affine{grow: time.Millisecond, base: 5 * time.Millisecond}
	c := overlap.Config{Policy: policy, Devices: slices.Repeat([]overlap.Predictor{p}, devices)}
	for i := range services {
		c.Services = append(c.Services, models.Service{
			ID: models.ServiceID(i), Name: strconv.Itoa(i), Operators: 1, QoSTarget: 100 * time.Millisecond, QueueLimit: 1 << 16, MaxBatch: 32,
		})
	}
	s, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	ends, outcomes := slices.Repeat([]time.Duration{overlap.Never}, devices), make([]models.Outcome, devices)
	event := func(now time.Duration, e overlap.Event) {
		if err := s.Step(now, &e); err != nil {
			b.Fatal(err)
		}
	}
	id, every := models.QueryID(0), 12*time.Millisecond/time.Duration(devices)
	b.ReportAllocs()
	for b.Loop() {
		id++
		now := time.Duration(id) * every
		for i, end := range ends {
			if end <= now {
				ends[i] = overlap.Never
				event(now, overlap.Event{Kind: overlap.Finish, Outcome: outcomes[i]})
			}
		}
		service := models.ServiceID(uint64(id) * 7919 % uint64(services))
		event(now, overlap.Event{Kind: overlap.Arrive, Query: models.Query{ID: id, Service: service, Size: 1, Arrival: now, Deadline: now + 100*time.Millisecond}})
		for wake := now; wake <= now; {
			r := s.Ready(now)
			if wake = r.Wake; r.Round != nil {
				d := r.Round.Device
				outcomes[d] = models.Outcome{Round: r.Round.Number, Device: d, Spans: []models.SpanOutcome{{Span: r.Round.Spans[0], Reached: 1}}}
				ends[d] = now + r.Round.Predicted.Latency
			}
		}
	}
	b.ReportMetric(float64(id)/b.Elapsed().Seconds(), "queries/s")
}

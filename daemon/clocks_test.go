package daemon

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// What is measured of a group is its latency as predictions have it, and beside
// it what the device's own clock says.
func TestMeasuresBothClocks(t *testing.T) {
	gpu := fakeworkers.Device{Operator: 100 * time.Microsecond, Overlap: 0.6, Sending: 40 * time.Microsecond, Clock: 0.5}
	r := startRig(t, rigOptions{services: 2, device: &gpu})
	r.await("solo")
	r.stop()
	d, _ := stored(t, r.Config().StateDir)
	spans := map[int]int{}
	for _, row := range d.Rows {
		var outcome executor.Outcome
		for _, s := range row.Group.Spans {
			if _, err := fmt.Sscanf(d.Models[s.Service].Name, "s%d", &s.Service); err != nil {
				t.Fatal(err)
			}
			took := gpu.Span(s)
			outcome.Spans = append(outcome.Spans, executor.SpanOutcome{SpanOutcome: models.SpanOutcome{Span: s, Took: took}, DeviceTook: took / 2})
		}
		outcome.Took = gpu.Group(outcome.Spans) + gpu.Sending
		micros := func(t time.Duration) float64 { return float64(t) / 1e3 }
		if math.Abs(row.Median-micros(outcome.Latency())) > 0.01 || math.Abs(row.Device-micros(outcome.DeviceTime())) > 0.01 {
			t.Errorf("%v: %v µs, on the device %v; want %v and %v", row.Group, row.Median, row.Device, outcome.Latency(), outcome.DeviceTime())
		}
		spans[len(row.Group.Spans)]++
	}
	if spans[1] == 0 || spans[2] == 0 {
		t.Errorf("rows by spans: %v", spans)
	}
}

// Both clocks of each span that serves are told: in the status, to a scrape and
// in the timeline. A device without a clock says nothing.
func TestServesWithBothClocks(t *testing.T) {
	for _, clock := range []float64{0, 0.5} {
		device := fakeworkers.Device{Operator: 100 * time.Microsecond, Overlap: 0.6, Clock: clock}
		r := startRig(t, rigOptions{services: 1, device: &device, change: func(c *config.Config) { c.Profile.OnStart = false }})
		r.serves()
		r.sync()
		engine := device.Span(models.Span{End: fakeworkers.Operators, Size: 1})
		onDevice := time.Duration(clock * float64(engine))
		o, ok := r.backend.FullStatus()
		if s := o.Services[0]; !ok || s.EngineSeconds != engine.Seconds() || s.DeviceSeconds != onDevice.Seconds() {
			t.Errorf("clock %v: %v s and %v s, want %v and %v", clock, s.EngineSeconds, s.DeviceSeconds, engine, onDevice)
		}
		if got := o.Services[0].Requests; got.Spans.Count != 1 || got.Spans.Took != engine || got.Device.Took != onDevice {
			t.Errorf("clock %v: %+v, want %v and %v", clock, got, engine, onDevice)
		}
		if told := strings.Contains(scrape(t, r.published()), `overlapd_span_device_seconds_total{service="s0"} 0.0002`); told != (clock > 0) {
			t.Errorf("clock %v: it is told: %t", clock, told)
		}
		page := r.backend.Timeline().Read(0, 9, nil)
		if len(page.Rounds) != 1 || page.Rounds[0].Spans[0].Device != onDevice || page.Rounds[0].Spans[0].Took != engine {
			t.Errorf("clock %v: %+v", clock, page.Rounds)
		}
		r.stop()
	}
}

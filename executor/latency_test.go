package executor

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

func TestLatency(t *testing.T) {
	span := func(took, device time.Duration) SpanOutcome {
		return SpanOutcome{SpanOutcome: models.SpanOutcome{Took: took}, DeviceTook: device}
	}
	for name, tt := range map[string]struct {
		outcome         Outcome
		latency, device time.Duration
	}{
		"none":            {Outcome{Took: 5}, 5, 0},
		"one on the CPU":  {Outcome{Took: 30, Spans: []SpanOutcome{span(20, 0)}}, 20, 0},
		"one on a GPU":    {Outcome{Took: 30, Spans: []SpanOutcome{span(20, 15)}}, 20, 15},
		"two on a GPU":    {Outcome{Took: 30, Spans: []SpanOutcome{span(20, 15), span(28, 11)}}, 30, 15},
		"one has no time": {Outcome{Took: 30, Spans: []SpanOutcome{span(20, 0), span(28, 11)}}, 30, 11},
	} {
		if l, d := tt.outcome.Latency(), tt.outcome.DeviceTime(); l != tt.latency || d != tt.device {
			t.Errorf("%s: %d, on the device %d; want %d, %d", name, l, d, tt.latency, tt.device)
		}
	}
}

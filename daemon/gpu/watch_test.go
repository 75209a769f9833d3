package gpu

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/cuda/mps"
)

// fakeWorkers writes down what it is told.
type fakeWorkers struct {
	said []string
	err  error
}

func (h *fakeWorkers) Hold(_ context.Context, cause error) error {
	first, _, _ := strings.Cut(cause.Error(), ":")
	h.said = append(h.said, "hold: "+first)
	return h.err
}

func (h *fakeWorkers) Resume() { h.said = append(h.said, "resume") }

func TestWatch(t *testing.T) {
	gone := mps.Event{Kind: mps.ControlDied, Err: errors.New("exited")}
	const (
		died    = "hold: the MPS server exited, and with it the CUDA contexts of all its clients"
		faulted = "hold: a kernel of one client failed, and the MPS server accepts no new client until all are gone"
		lost    = "hold: MPS is gone"
	)
	for name, tt := range map[string]struct {
		events []mps.Event
		want   []string
	}{
		"server dies":                 {[]mps.Event{mps.Event{Kind: mps.ServerDied}}, []string{died, "resume"}},
		"server faults":               {[]mps.Event{mps.Event{Kind: mps.ServerFaulted}}, []string{faulted}},
		"faults and recovers":         {[]mps.Event{mps.Event{Kind: mps.ServerFaulted}, mps.Event{Kind: mps.ServerActive}}, []string{faulted, "resume"}},
		"control dies":                {[]mps.Event{gone, mps.Event{Kind: mps.ServerDied}, mps.Event{Kind: mps.ServerActive}}, []string{lost, died}},
		"control comes back":          {[]mps.Event{gone, mps.Event{Kind: mps.Restarted}}, []string{lost, "resume"}},
		"unresponsive":                {[]mps.Event{mps.Event{Kind: mps.Unresponsive, Err: errors.New("slow")}}, nil},
		"given up":                    {[]mps.Event{gone, mps.Event{Kind: mps.GaveUp, Err: errors.New("too often")}, mps.Event{Kind: mps.ServerActive}}, []string{lost, "hold: MPS failed permanently"}},
		"restarted after it gave up":  {[]mps.Event{mps.Event{Kind: mps.GaveUp, Err: errors.New("too often")}, mps.Event{Kind: mps.Restarted}}, []string{"hold: MPS failed permanently", "resume"}},
		"a fault while it is down":    {[]mps.Event{gone, mps.Event{Kind: mps.ServerFaulted}, mps.Event{Kind: mps.ServerActive}}, []string{lost, faulted}},
		"two faults before it serves": {[]mps.Event{mps.Event{Kind: mps.ServerFaulted}, mps.Event{Kind: mps.ServerFaulted}, mps.Event{Kind: mps.ServerActive}}, []string{faulted, faulted, "resume"}},
	} {
		for _, err := range []error{nil, errors.New("a process does not end")} {
			h := &fakeWorkers{err: err}
			var without error
			w := &watch{life: t.Context(), workers: h, lost: func(err error) { without = err }, recover: time.NewTimer(time.Hour)}
			for _, e := range tt.events {
				w.take(e)
			}
			if !slices.Equal(h.said, tt.want) {
				t.Errorf("%s: %q, want %q", name, h.said, tt.want)
			}
			last := h.said[max(len(h.said)-1, 0):]
			lost := len(last) > 0 && strings.Contains(last[0], "failed permanently")
			if lost != (without != nil) || lost && !strings.Contains(without.Error(), `mode = "off"`) {
				t.Errorf("%s: without MPS: %v", name, without)
			}
		}
	}
}

// The watch ends with the daemon, and with its events.
func TestWatchEnds(t *testing.T) {
	life, end := context.WithCancel(context.Background())
	events := make(chan mps.Event)
	close(events)
	(&watch{life: life, workers: &fakeWorkers{}}).run(events)
	end()
	(&watch{life: life, workers: &fakeWorkers{}}).run(make(chan mps.Event))
}

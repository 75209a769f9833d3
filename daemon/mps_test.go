package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// fakeHolder writes down what it is told.
type fakeHolder struct {
	said []string
	err  error
}

func (h *fakeHolder) Hold(_ context.Context, _ []models.ServiceID, cause error) error {
	first, _, _ := strings.Cut(cause.Error(), ":")
	h.said = append(h.said, "hold: "+first)
	return h.err
}

func (h *fakeHolder) Resume([]models.ServiceID) error {
	h.said = append(h.said, "resume")
	return h.err
}

func TestMPSWatch(t *testing.T) {
	gone := mps.ControlDied{Err: errors.New("exited")}
	const (
		died    = "hold: the MPS server died, and with it the CUDA contexts of all its clients"
		faulted = "hold: a kernel of one client failed, and the MPS server takes no new client until all are gone"
		lost    = "hold: MPS is gone"
	)
	for name, tt := range map[string]struct {
		events []mps.Event
		want   []string
	}{
		"server dies":                 {[]mps.Event{mps.ServerDied{}}, []string{died, "resume"}},
		"server faults":               {[]mps.Event{mps.ServerFaulted{}}, []string{faulted}},
		"faults and recovers":         {[]mps.Event{mps.ServerFaulted{}, mps.ServerActive{}}, []string{faulted, "resume"}},
		"control dies":                {[]mps.Event{gone, mps.ServerDied{}, mps.ServerActive{}}, []string{lost, died}},
		"control comes back":          {[]mps.Event{gone, mps.Restarted{}}, []string{lost, "resume"}},
		"unresponsive":                {[]mps.Event{mps.Unresponsive{Err: errors.New("slow")}}, nil},
		"given up":                    {[]mps.Event{gone, mps.GaveUp{Err: errors.New("too often")}, mps.ServerActive{}}, []string{lost, "hold: MPS is given up"}},
		"restarted after it gave up":  {[]mps.Event{mps.GaveUp{Err: errors.New("too often")}, mps.Restarted{}}, []string{"hold: MPS is given up", "resume"}},
		"a fault while it is down":    {[]mps.Event{gone, mps.ServerFaulted{}, mps.ServerActive{}}, []string{lost, faulted}},
		"two faults before it serves": {[]mps.Event{mps.ServerFaulted{}, mps.ServerFaulted{}, mps.ServerActive{}}, []string{faulted, faulted, "resume"}},
	} {
		for _, err := range []error{nil, errors.New("a process does not end")} {
			b := &backend{log: zerolog.Nop(), life: context.Background(), part: &gpu.Part{}, inbox: make(chan message, 1), registry: new(registry)}
			b.occupied.Store(&[]models.ServiceID{0})
			h := &fakeHolder{err: err}
			w := &mpsWatch{backend: b, holder: h, recover: time.NewTimer(time.Hour)}
			for _, e := range tt.events {
				w.take(e)
			}
			if !slices.Equal(h.said, tt.want) {
				t.Errorf("%s: %q, want %q", name, h.said, tt.want)
			}
			if gaveUp := len(b.inbox) == 1; gaveUp != strings.Contains(strings.Join(h.said, " "), "given up") {
				t.Errorf("%s: the services are given up: %t", name, gaveUp)
			} else if gaveUp {
				if e, ok := (<-b.inbox).event.(executor.WorkerFailed); !ok || !strings.Contains(e.Err.Error(), `mode = "off"`) {
					t.Errorf("%s: %+v", name, e)
				}
			}
		}
	}
}

// The watch ends with the daemon, with its events, and resumes by itself when a
// server does not say that it has recovered.
func TestMPSWatchEnds(t *testing.T) {
	life, end := context.WithCancel(context.Background())
	b := &backend{log: zerolog.Nop(), life: life, part: &gpu.Part{}}
	events := make(chan mps.Event)
	close(events)
	(&mpsWatch{backend: b, holder: &fakeHolder{}}).run(events)
	end()
	(&mpsWatch{backend: b, holder: &fakeHolder{}}).run(make(chan mps.Event))
}

func TestShare(t *testing.T) {
	l := &loop{backend: new(backend), slots: []*slot{{threads: 4}, {threads: 4}}}
	l.slots[1].config.MPS.Percentage = 50
	if got := l.share(1); got != "4 threads" {
		t.Error(got)
	}
	l.part = new(gpu.Part)
	if a, c := l.share(0), l.share(1); a != "4 threads" || c != "4 threads, MPS 50%" {
		t.Errorf("%q, %q", a, c)
	}
}

func TestGiven(t *testing.T) {
	for _, tt := range []struct{ limit, own, want int64 }{{0, 0, 0}, {5, 0, 5}, {0, 6, 6}, {5, 6, 5}, {6, 5, 5}} {
		u := &unit{config: Config{CUDA: CUDAConfig{MemoryLimit: tt.limit}}}
		if got := u.given(&ServiceConfig{MPS: MPSLimits{PinnedMemory: tt.own}}); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

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
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/query"
)

// fakeHolder writes down what it is told.
type fakeHolder struct {
	said []string
	err  error
}

func (h *fakeHolder) Hold(_ context.Context, cause error) error {
	first, _, _ := strings.Cut(cause.Error(), ":")
	h.said = append(h.said, "hold: "+first)
	return h.err
}

func (h *fakeHolder) Resume() { h.said = append(h.said, "resume") }

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
			b := &backend{log: zerolog.Nop(), life: context.Background(), part: &gpu.Part{}, inbox: make(chan message, 2), Registry: new(query.Registry)}
			h := &fakeHolder{err: err}
			w := &mpsWatch{backend: b, holder: h, recover: time.NewTimer(time.Hour)}
			for _, e := range tt.events {
				w.take(e)
			}
			if !slices.Equal(h.said, tt.want) {
				t.Errorf("%s: %q, want %q", name, h.said, tt.want)
			}
			l := &loop{backend: b}
			for range len(b.inbox) {
				l.take(<-b.inbox)
			}
			last := h.said[max(len(h.said)-1, 0):]
			lost := len(last) > 0 && strings.Contains(last[0], "given up")
			if lost != (l.withoutMPS != nil) || lost && !strings.Contains(l.withoutMPS.Error(), `mode = "off"`) {
				t.Errorf("%s: without MPS: %v", name, l.withoutMPS)
			}
		}
	}
}

// When MPS is given up, all services are, those that load for the first time
// among them, and none can be added before it is back.
func TestServicesWithoutMPS(t *testing.T) {
	r := newReloadRig(t, 1)
	r.begin(func(c *config.Config) { c.Services = append(c.Services, added("new")) })
	r.joins()
	w := &mpsWatch{backend: r.backend, holder: &fakeHolder{}, recover: time.NewTimer(time.Hour)}
	w.giveUp(errors.New("too often"))
	if done := r.end(); !strings.Contains(done.Failed["new"], "MPS is given up") {
		t.Errorf("%+v", done)
	}
	if !r.face.Service([]byte("s0")).GivenUp() {
		t.Error("the service that served is not given up")
	}
	add := func(c *config.Config) { c.Services = append(c.Services, added("newer")) }
	if done := r.reload(add); !strings.Contains(done.Failed["newer"], `mode = "off"`) {
		t.Errorf("%+v", done)
	}
	w.down = false
	w.resume()
	r.begin(add)
	r.workers.revive(r.joins(), fakeOperators)
	if done := r.end(); done.Failed["newer"] != "" {
		t.Errorf("MPS is back: %+v", done)
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
		u, s := new(unit), new(config.Service)
		u.config.CUDA.MemoryLimit, s.MPS.PinnedMemory = tt.limit, tt.own
		if got := u.given(s); got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

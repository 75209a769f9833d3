package executor

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

var errServer = errors.New("the server died")

// What is held ends together, loses what it ran, and starts only when it is
// resumed.
func TestHold(t *testing.T) {
	f := startReady(t, func(o *Options) { o.RestartLimit = 1 }, 2)
	for range 3 { // more often than the restart limit
		f.send(f.whole(0, 1, "0 sleep 1h"), f.whole(1, 1, "0 sleep 1h"))
		if err := f.Hold(context.Background(), errServer); err != nil {
			t.Fatal(err)
		}
		for i, s := range f.receive().Spans {
			if s.Status != models.SpanLost || !errors.Is(s.Err, errServer) {
				t.Errorf("span %d: %s, %v", i, s.Status, s.Err)
			}
		}
		for id := range models.ServiceID(2) {
			e := awaitEvent(f, WorkerLost, func(e Event) bool { return e.Service == id })
			if !errors.Is(e.Err, ErrHeld) || e.RestartIn != 0 {
				t.Errorf("%+v", e)
			}
			if state, _ := f.State(id); state.PID != 0 || state.Phase != Waiting {
				t.Errorf("held: %+v", state)
			}
		}
		if s := f.do(f.whole(0, 2, "x")); s.Status != models.SpanLost || !errors.Is(s.Err, ErrNotReady) {
			t.Errorf("while held: %s, %v", s.Status, s.Err)
		}
		f.Resume()
		for id := range models.ServiceID(2) {
			awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == id })
		}
	}
	if s := f.do(f.whole(1, 3, "x")); s.Status != models.SpanDone || texts(s)[0] != "x0123" {
		t.Errorf("resumed: %s, %v", s.Status, s.Err)
	}
}

// A service that is added while workers are held has none before they are
// resumed, and one that is removed meanwhile keeps no other from it.
func TestHoldWhileServicesComeAndGo(t *testing.T) {
	f := startReady(t, nil, 2)
	if err := f.Hold(context.Background(), errServer); err != nil {
		t.Fatal(err)
	}
	f.awaitRemoved(f.remove(1))
	if err := f.Add(fakeSpec(2, "")); err != nil {
		t.Fatal(err)
	}
	if err := f.Hold(context.Background(), errServer); err != nil {
		t.Error("again:", err)
	}
	f.Resume()
	for _, id := range []models.ServiceID{0, 2} {
		awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == id })
	}
	if state, _ := f.State(2); state.Starts != 1 {
		t.Errorf("what was added while workers were held was started %d times", state.Starts)
	}
	f.once(2, 1)
}

// Holding is possible at every moment of a worker's life, and closing while
// something is held ends.
func TestHoldWhileStarting(t *testing.T) {
	f := start(t, nil, "sleep 1h")
	awaitEvent(f, WorkerStarting, nil)
	for range 2 {
		if err := f.Hold(context.Background(), errServer); err != nil {
			t.Fatal(err)
		}
	}
	if state, _ := f.State(0); state.PID != 0 {
		t.Errorf("%+v", state)
	}
	f.Resume()
	f.Resume()
	awaitEvent(f, WorkerStarting, nil)
	ended, end := context.WithCancel(context.Background())
	end()
	if err := f.Hold(ended, errServer); err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// However far a start has come, Hold does not return before nothing is left of
// it, and the worker does not stay.
func TestHoldWhileSpawning(t *testing.T) {
	for _, resumed := range []bool{false, true} {
		g := &gate{}
		life := g.enter(context.Background()) // what follows starts a process
		gone := g.hold(errServer)
		select {
		case <-gone:
			t.Fatal("a process may be there")
		default:
		}
		if resumed {
			g.resume()
		}
		if err := context.Cause(life); !errors.Is(err, errServer) {
			t.Errorf("the worker stays: %v", err)
		}
		g.leave()
		<-gone
		if again := g.hold(errServer); again != closed {
			t.Error("nothing is there to wait for")
		}
	}
}

// A service that was refused has no worker until somebody asks for one, and one
// whose model does not fit is given up at once.
func TestRefused(t *testing.T) {
	refusal := errors.New("2 + 2 = 4, and there are 3")
	f := start(t, func(o *Options) { o.Services[0].Refused = refusal }, "", "full 5 are needed", "")
	if e := awaitEvent(f, WorkerFailed, func(e Event) bool { return e.Service == 0 }); !errors.Is(e.Err, refusal) {
		t.Error(e.Err)
	}
	e := awaitEvent(f, WorkerFailed, func(e Event) bool { return e.Service == 1 })
	if !errors.Is(e.Err, ErrNoRoom) || !errors.Is(e.Err, wire.ErrDeviceFull) || !strings.Contains(e.Err.Error(), "5 are needed") {
		t.Error(e.Err)
	}
	awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == 2 })
	if state, _ := f.State(0); state.Starts != 0 || state.Phase != GivenUp {
		t.Errorf("%+v", state)
	}
	if err := f.Restart(0); err != nil {
		t.Fatal(err)
	}
	awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == 0 })
}

// A device that is lost under a span ends the worker, and the span can be run
// again.
func TestDeviceLost(t *testing.T) {
	f := startReady(t, nil, 1)
	s := f.do(f.whole(0, 1, "1 device is gone"))
	if s.Status != models.SpanLost || !errors.Is(s.Err, wire.ErrDeviceLost) {
		t.Errorf("%s, %v", s.Status, s.Err)
	}
	if e := awaitEvent(f, WorkerLost, nil); !errors.Is(e.Err, wire.ErrDeviceLost) {
		t.Error(e.Err)
	}
	awaitEvent(f, WorkerReady, nil)
	if s := f.do(f.whole(0, 2, "x")); s.Status != models.SpanDone || texts(s)[0] != "x0123" {
		t.Errorf("%s, %v", s.Status, s.Err)
	}
}

// A worker that does not end after it lost its device is ended.
func TestExpire(t *testing.T) {
	f := startReady(t, func(o *Options) { o.CloseGrace = time.Millisecond }, 1)
	f.service(0).ready().expire(wire.ErrDeviceLost)
	if e := awaitEvent(f, WorkerLost, nil); !errors.Is(e.Err, wire.ErrDeviceLost) {
		t.Error(e.Err)
	}
}

// Each service has an environment of its own.
func TestServiceEnv(t *testing.T) {
	f := start(t, func(o *Options) {
		o.RestartLimit = 1
		o.Services[0].Env = append(os.Environ(), "OVERLAPD_TEST_DEVICE=MIG-0")
	}, "env OVERLAPD_TEST_DEVICE", "env OVERLAPD_TEST_DEVICE")
	for id, want := range []string{"OVERLAPD_TEST_DEVICE is MIG-0", "OVERLAPD_TEST_DEVICE is "} {
		e := awaitEvent(f, WorkerLost, func(e Event) bool { return e.Service == models.ServiceID(id) })
		if !strings.Contains(e.Err.Error(), ErrLoad.Error()+": "+want+" (") {
			t.Errorf("service %d: %v, want %s", id, e.Err, want)
		}
	}
}

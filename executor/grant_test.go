package executor

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// gated makes the workers of a fixture ask.
func gated(o *Options) { o.Gated = true }

// grantAll is for Events: it gives leave to whoever asks.
func grantAll(e *atomic.Pointer[Executor], next func(Event)) func(Event) {
	return func(event Event) {
		if ask, ok := event.(WorkerAsks); ok {
			_ = e.Load().Grant(ask.Service) // known, it asks
		}
		next(event)
	}
}

// A gated worker does a step each time that it is told to, and no other.
func TestGrant(t *testing.T) {
	f := start(t, gated, "steps 3", "steps 1")
	for i := range int64(3) {
		ask := awaitEvent(f, func(e WorkerAsks) bool { return e.Service == 0 })
		if state, _ := f.State(0); ask.Phase != "fake" || ask.Done != i || ask.Total != 3 || ask.PID != state.PID || state.Phase != Starting {
			t.Errorf("%+v of %+v", ask, state)
		}
		if err := f.Grant(0); err != nil {
			t.Fatal(err)
		}
	}
	ready := awaitEvent[WorkerReady](f, nil)
	if ready.Service != 0 || ready.Waited <= 0 || ready.Waited >= ready.Took {
		t.Errorf("%+v", ready)
	}
	if err := f.Grant(0); err != nil {
		t.Error("it does not ask:", err)
	}
	if err := f.Grant(7); !errors.Is(err, ErrUnknownService) {
		t.Error(err)
	}
	f.once(0, 1)
	if state, _ := f.State(1); state.Phase != Starting {
		t.Errorf("nobody let it: %+v", state)
	}
}

// Leave may be given while the event is told.
func TestGrantWhileTold(t *testing.T) {
	var e atomic.Pointer[Executor]
	ready := make(chan struct{})
	f := start(t, func(o *Options) {
		o.Gated = true
		grant := grantAll(&e, o.Events)
		o.Events = func(event Event) { <-ready; grant(event) }
	}, "steps 20")
	e.Store(f.Executor)
	close(ready)
	awaitEvent[WorkerReady](f, nil)
}

// Without the option nobody asks.
func TestNotGated(t *testing.T) {
	f := start(t, nil, "steps 3")
	if w := awaitEvent[WorkerReady](f, nil); w.Waited != 0 || f.asked() {
		t.Errorf("it asked: %+v", w)
	}
}

func (f *fixture) asked() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if _, ok := e.(WorkerAsks); ok {
			return true
		}
	}
	return false
}

// Waiting for leave does not use up the time to load, but that of the whole.
func TestLoadTimes(t *testing.T) {
	f := start(t, func(o *Options) {
		o.Gated, o.LoadTimeout, o.LoadLimit = true, 2*time.Second, time.Hour
	}, "steps 1")
	awaitEvent[WorkerAsks](f, nil)
	w := f.service(0).mu.living
	w.clock.mu.Lock()
	if w.clock.mu.work.Reset(time.Hour) || w.clock.mu.left >= 2*time.Second || w.clock.mu.left <= 0 {
		t.Errorf("the clock runs while it waits, %v are left", w.clock.mu.left)
	}
	w.clock.mu.Unlock()
	if err := f.Grant(0); err != nil {
		t.Fatal(err)
	}
	awaitEvent[WorkerReady](f, nil)
}

func TestLoadTakesTooLong(t *testing.T) {
	for name, c := range map[string]struct {
		path  string
		limit time.Duration
	}{
		"waiting": {"steps 1", 50 * time.Millisecond},
		"working": {"sleep 1h", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(o *Options) {
				o.Gated, o.LoadTimeout, o.LoadLimit = true, 50*time.Millisecond, c.limit
				o.BackoffMin, o.BackoffMax = time.Hour, time.Hour
			}, c.path)
			if e := awaitEvent[WorkerLost](f, nil); !errors.Is(e.Err, ErrLoadTimeout) {
				t.Error(e.Err)
			}
		})
	}
}

// A worker that asks can be killed, held and removed, and the next one asks
// anew.
func TestLostWhileAsking(t *testing.T) {
	f := start(t, gated, "steps 2")
	first := awaitEvent[WorkerAsks](f, nil)
	if err := syscall.Kill(first.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	awaitEvent[WorkerLost](f, nil)
	second := awaitEvent[WorkerAsks](f, nil)
	if second.PID == first.PID || second.Done != 0 {
		t.Errorf("%+v, then %+v", first, second)
	}
	if err := f.Hold(t.Context(), errServer); err != nil {
		t.Fatal(err)
	}
	if err := f.Grant(0); err != nil {
		t.Error("held:", err)
	}
	if err := f.awaitRemoved(f.remove(0)); err != nil {
		t.Error(err)
	}
}

// A worker that asks where it need not, or again while it waits, is lost.
func TestAsksThatCannotBe(t *testing.T) {
	for name, change := range map[string]func(*Options){"not gated": nil, "twice": gated} {
		t.Run(name, func(t *testing.T) {
			f := start(t, func(o *Options) {
				o.BackoffMin, o.BackoffMax = time.Hour, time.Hour
				if change != nil {
					change(o)
				}
			}, "lie asks")
			if e := awaitEvent[WorkerLost](f, nil); !errors.Is(e.Err, ErrProtocol) {
				t.Error(e.Err)
			}
		})
	}
}

// A worker that asks without working between its questions keeps the scheduler
// from its own work, and is ended.
func TestAskFlood(t *testing.T) {
	var e atomic.Pointer[Executor]
	ready := make(chan struct{})
	f := start(t, func(o *Options) {
		o.Gated, o.RestartLimit, o.BackoffMin, o.BackoffMax = true, 1, time.Hour, time.Hour
		grant := grantAll(&e, o.Events)
		o.Events = func(event Event) { <-ready; grant(event) }
	}, "lie asks forever")
	e.Store(f.Executor)
	close(ready)
	if lost := awaitEvent[WorkerLost](f, nil); !errors.Is(lost.Err, ErrProtocol) {
		t.Error(lost.Err)
	}
}

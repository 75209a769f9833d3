package executor

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// part puts a text into a service's arena and returns the span of all
// operators with it, to be freed before the service is removed.
func (f *fixture) part(id models.ServiceID, batch models.BatchID, text string) (SpanRequest, func()) {
	f.t.Helper()
	q, free := f.place(id, 1, text)
	return SpanRequest{Span: models.Span{Service: id, Batch: batch, End: fakeOperators, Size: 1}, Queries: []wire.QueryTensors{q}}, free
}

// once runs a text on a service whose memory is given back after it.
func (f *fixture) once(id models.ServiceID, batch models.BatchID) {
	f.t.Helper()
	span, free := f.part(id, batch, "x")
	defer free()
	if s := f.do(span); s.Status != models.SpanDone || texts(s)[0] != "x0123" {
		f.t.Fatalf("service %d: %+v", id, s)
	}
}

func (f *fixture) remove(id models.ServiceID) <-chan struct{} {
	f.t.Helper()
	gone, err := f.Remove(id)
	if err != nil {
		f.t.Fatal(err)
	}
	return gone
}

// awaitRemoved returns when a service is gone.
func (f *fixture) awaitRemoved(gone <-chan struct{}) {
	f.t.Helper()
	select {
	case <-gone:
	case <-time.After(patience):
		f.t.Fatal("the service does not go away")
	}
}

// lastEvent returns the last event of a service.
func (f *fixture) lastEvent(id models.ServiceID) (last Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.events {
		if e.Service == id {
			last = e
		}
	}
	return last
}

// descriptors counts the open files of this process.
func descriptors(t testing.TB) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// So is one that has no worker: it waits for a restart, was given up, or is
// held.
func TestRemoveWithoutWorker(t *testing.T) {
	f := start(t, func(o *Options) {
		o.BackoffMin, o.BackoffMax = time.Hour, time.Hour
		o.Services[1].Refused = errServer
	}, "fail", "", "")
	awaitEvent(f, WorkerLost, func(e Event) bool { return e.Service == 0 })
	awaitEvent(f, WorkerFailed, func(e Event) bool { return e.Service == 1 })
	awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == 2 })
	if err := f.Hold(context.Background(), errServer); err != nil {
		t.Fatal(err)
	}
	for id := range models.ServiceID(3) {
		f.awaitRemoved(f.remove(id))
		if e := f.lastEvent(id); e.Kind != WorkerStopped || e.Service != id || e.PID != 0 {
			t.Errorf("service %d: the last event is %T %+v", id, e, e)
		}
	}
	f.Resume()
	for id := range models.ServiceID(3) {
		if err := f.Add(fakeSpec(id, "")); err != nil {
			t.Error(err)
		}
		awaitEvent(f, WorkerReady, func(e Event) bool { return e.Service == id })
		f.once(id, 1)
	}
}

// A span in flight of a service that is removed ends, and its round with it;
// further ones are lost.
func TestRemoveWithSpansInFlight(t *testing.T) {
	for name, kill := range map[string]bool{"politely": false, "killed": true} {
		t.Run(name, func(t *testing.T) {
			gate := t.TempDir() + "/gate"
			f := startReady(t, nil, 2)
			pid := awaitPID(f)
			one, free := f.part(0, 1, "1 signal "+gate)
			other, freeOther := f.part(1, 1, "x")
			defer freeOther()
			f.send(one, other)
			awaitEvent(f, WorkerOutput, nil) // it runs
			gone := f.remove(0)
			if _, err := f.Remove(0); !errors.Is(err, ErrRemoved) {
				t.Error("again:", err)
			}
			late, freeLate := f.part(0, 2, "x")
			f.send(late)
			if s := f.receive().Spans[0]; s.Status != models.SpanLost || !errors.Is(s.Err, ErrRemoved) {
				t.Errorf("late: %+v", s)
			}
			if f.awaitStop(0); kill {
				syscall.Kill(pid, syscall.SIGKILL)
			} else {
				touch(t, gate)
			}
			o := f.receive()
			if s := o.Spans[0]; (s.Status == models.SpanStopped) == kill || (s.Status == models.SpanLost) != kill {
				t.Errorf("%+v", s)
			}
			if s := o.Spans[1]; s.Status != models.SpanDone || texts(s)[0] != "x0123" {
				t.Errorf("beside it: %+v", s)
			}
			f.awaitRemoved(gone)
			free()
			freeLate()
			f.once(1, 2)
		})
	}
}

// A worker that does not exit is killed, and its span is lost.
func TestRemoveByForce(t *testing.T) {
	f := startReady(t, func(o *Options) { o.CloseGrace = time.Millisecond }, 1)
	span, free := f.part(0, 1, "1 signal "+t.TempDir()+"/never")
	f.send(span)
	awaitEvent(f, WorkerOutput, nil)
	gone := f.remove(0)
	if s := f.receive().Spans[0]; s.Status != models.SpanLost || !errors.Is(s.Err, ErrRemoved) {
		t.Errorf("%+v", s)
	}
	free()
	f.awaitRemoved(gone)
}

// An answer stays as it is until it is released, whatever has the ID of its service.
func TestRemoveWithLeases(t *testing.T) {
	f := startReady(t, nil, 1)
	span, free := f.part(0, 1, "abc")
	s := f.do(span)
	free()
	f.awaitRemoved(f.remove(0))
	if err := f.Add(fakeSpec(0, "")); err != nil {
		t.Fatal(err)
	}
	awaitEvent(f, WorkerReady, nil)
	f.once(0, 1)
	if got := texts(s); len(got) != 1 || got[0] != "abc0123" {
		t.Errorf("the answer has become %q", got)
	}
}

// Close waits for a removal, and reports outputs that were not given back unless it was
// over.
func TestCloseDuringRemove(t *testing.T) {
	for name, leak := range map[string]bool{"clean": false, "leak": true} {
		t.Run(name, func(t *testing.T) {
			f := startReady(t, nil, 2)
			s := f.do(f.whole(1, 1, "x"))
			if !leak {
				texts(s)
			}
			gone := f.remove(0)
			if err := f.Executor.Close(); errors.Is(err, ErrLeak) != leak {
				t.Errorf("closing: %v", err)
			}
			f.awaitRemoved(gone)
			if leak {
				texts(s)
			}
			if err := f.Add(fakeSpec(5, "")); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
			if _, err := f.Remove(1); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// Before Start a service is added and removed as if it had not been, and what
// cannot work is refused.
func TestAddBeforeStart(t *testing.T) {
	f := &fixture{t: t, news: make(chan struct{}, 1)}
	e, err := New(Options{Command: []string{os.Args[0]}, Events: f.event})
	if err != nil {
		t.Fatal(err)
	}
	f.Executor = e
	bad := fakeSpec(4, "")
	bad.OutputBytes = wire.MaxArenaBytes + 1
	if err := f.Add(bad); !errors.Is(err, ErrOptions) || !errors.Is(err, wire.ErrArenaSize) {
		t.Error(err)
	}
	if err := errors.Join(f.Add(fakeSpec(0, "fail")), f.Add(fakeSpec(1, ""))); err != nil {
		t.Fatal(err)
	}
	f.awaitRemoved(f.remove(0))
	if err := e.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	awaitEvent(f, WorkerReady, nil)
	f.once(1, 1)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if e := f.lastEvent(0); e.Kind != WorkerStarting {
		t.Errorf("%+v of a service that never started", e)
	}
}

// Whatever is added, removed, run and killed, each round has one outcome, and
// in the end nothing is left.
func TestAnyChanges(t *testing.T) {
	const ids = 3
	rapid.Check(t, func(rt *rapid.T) {
		before := descriptors(t)
		f := start(t, func(o *Options) {
			o.RestartLimit, o.CloseGrace = 1000, 200*time.Millisecond
		}, "")
		m := &changes{f: f, outcomes: map[uint64]int{}}
		m.present[0], m.loads[0] = true, true
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) {
				id := models.ServiceID(rapid.IntRange(0, ids-1).Draw(rt, "id"))
				path := rapid.SampledFrom([]string{"", "", "sleep 5ms", "fail"}).Draw(rt, "path")
				m.settled(id)
				if err := f.Add(fakeSpec(id, path)); (err == nil) == m.present[id] {
					rt.Fatalf("add %d: %v", id, err)
				}
				if !m.present[id] {
					m.present[id], m.loads[id] = true, path != "fail"
				}
			},
			"ready": func(*rapid.T) {
				for id := range models.ServiceID(ids) {
					m.awaitReady(id)
				}
			},
			"remove": func(rt *rapid.T) {
				id := models.ServiceID(rapid.IntRange(0, ids-1).Draw(rt, "id"))
				gone, err := f.Remove(id)
				if (err == nil) != (m.present[id] && m.gone[id] == nil) {
					rt.Fatalf("remove %d: %v", id, err)
				}
				if err == nil {
					m.gone[id] = gone
				}
			},
			"run": func(rt *rapid.T) {
				text := rapid.SampledFrom([]string{"x", "1 sleep 1ms", "2 exit 1", "1 fail y"}).Draw(rt, "text")
				m.run(rapid.SliceOfNDistinct(rapid.IntRange(0, ids-1), 1, ids, rapid.ID).Draw(rt, "ids"), text)
			},
			"kill": func(rt *rapid.T) {
				state, err := f.State(models.ServiceID(rapid.IntRange(0, ids-1).Draw(rt, "id")))
				if err == nil && state.PID != 0 {
					syscall.Kill(state.PID, syscall.SIGKILL)
				}
			},
			"receive": func(*rapid.T) {
				if len(m.free) > 0 {
					m.receive()
				}
			},
			"await": func(rt *rapid.T) { m.settled(models.ServiceID(rapid.IntRange(0, ids-1).Draw(rt, "id"))) },
		})
		for id := range models.ServiceID(ids) {
			m.settled(id)
		}
		m.receiveAll()
		if err := f.Close(); err != nil {
			rt.Error(err)
		}
		if len(m.outcomes) != int(f.round) {
			rt.Errorf("%d outcomes of %d rounds", len(m.outcomes), f.round)
		}
		for round, n := range m.outcomes {
			if n != 1 {
				rt.Errorf("round %d has %d outcomes", round, n)
			}
		}
		if left := children(os.Getpid()); len(left) > 0 {
			rt.Errorf("processes are left: %v", left)
		}
		if n := descriptors(t); n != before {
			rt.Errorf("%d files are open, %d were", n, before)
		}
	})
}

// changes is what a test has done to an executor.
type changes struct {
	f        *fixture
	present  [3]bool
	loads    [3]bool            // its model does
	gone     [3]<-chan struct{} // of those that are being removed
	batch    models.BatchID
	outcomes map[uint64]int
	free     map[uint64][]func() // inputs of rounds that run
}

func (m *changes) run(ids []int, text string) {
	var spans []SpanRequest
	var free []func()
	m.batch++
	for _, id := range ids {
		if m.present[id] && m.gone[id] == nil {
			s, give := m.f.part(models.ServiceID(id), m.batch, text)
			spans, free = append(spans, s), append(free, give)
		}
	}
	if len(spans) == 0 {
		return
	}
	if len(m.free) >= MaxRounds {
		m.receive()
	}
	if m.free == nil {
		m.free = map[uint64][]func(){}
	}
	m.free[m.f.send(spans...)] = free
}

func (m *changes) receive() {
	o := m.f.receive()
	m.outcomes[o.Round]++
	for _, s := range o.Spans {
		texts(s)
	}
	for _, free := range m.free[o.Round] {
		free()
	}
	delete(m.free, o.Round)
}

func (m *changes) receiveAll() {
	for len(m.free) > 0 {
		m.receive()
	}
}

// awaitReady waits for the worker of a service, if one comes.
func (m *changes) awaitReady(id models.ServiceID) {
	for end := time.Now().Add(patience); m.present[id] && m.loads[id] && m.gone[id] == nil; time.Sleep(time.Millisecond) {
		state, err := m.f.State(id)
		if err == nil && state.Phase == Ready {
			return
		}
		if time.Now().After(end) {
			m.f.t.Fatalf("service %d is not ready: %+v, %v", id, state, err)
		}
	}
}

// settled waits for the removal of a service, if one runs.
func (m *changes) settled(id models.ServiceID) {
	if m.gone[id] == nil {
		return
	}
	m.receiveAll()
	m.f.awaitRemoved(m.gone[id])
	m.gone[id], m.present[id] = nil, false
}

// awaitStop returns when the span of a service that is removed was told to stop:
// its supervisor does that in its own time.
func (f *fixture) awaitStop(id models.ServiceID) {
	f.t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
		w := f.service(id).ready()
		w.mu.Lock()
		stopped := w.mu.flights.list[0].stopped
		w.mu.Unlock()
		if stopped {
			return
		}
	}
	f.t.Fatal("its span is not told to stop")
}

// A service that loads is removed at once, whatever it waits for.
func TestRemoveWhileLoading(t *testing.T) {
	f := start(t, nil, "sleep 1h")
	pid := awaitEvent(f, WorkerStarting, nil).PID
	if f.awaitRemoved(f.remove(0)); alive(pid) {
		t.Error("its worker is left")
	}
	if e := f.lastEvent(0); e.Kind != WorkerStopped || e.Service != 0 || e.PID != pid {
		t.Errorf("the last event is %+v", e)
	}
}

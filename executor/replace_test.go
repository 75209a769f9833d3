package executor

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/overlapd/overlapd/models"
)

var errWrong = errors.New("not the worker that is wanted")

// A worker is replaced as often as one likes without counting as lost, also
// from within the event that tells that it is ready, and its spans are lost.
func TestReplace(t *testing.T) {
	f := startReady(t, func(o *Options) { o.RestartLimit = 1 }, 2)
	for range 3 { // more often than the restart limit
		f.send(f.whole(0, 1, "0 sleep 1h"))
		if err := f.Replace(0, errWrong); err != nil {
			t.Fatal(err)
		}
		if s := f.receive().Spans[0]; s.Status != models.SpanLost || !errors.Is(s.Err, errWrong) || !errors.Is(s.Err, ErrReplaced) {
			t.Errorf("%s, %v", s.Status, s.Err)
		}
		if e := awaitEvent[WorkerLost](f, nil); e.Service != 0 || e.RestartIn != 0 {
			t.Errorf("%+v", e)
		}
		awaitEvent(f, func(e WorkerReady) bool { return e.Service == 0 })
	}
	if s := f.do(f.whole(0, 2, "x")); s.Status != models.SpanDone || texts(s)[0] != "x0123" {
		t.Errorf("replaced: %s, %v", s.Status, s.Err)
	}
	if state, _ := f.State(1); state.Starts != 1 {
		t.Errorf("the other service was started %d times", state.Starts)
	}
	if err := f.Replace(7, errWrong); !errors.Is(err, ErrUnknownService) {
		t.Errorf("an unknown service: %v", err)
	}
}

func TestReplaceWhileTold(t *testing.T) {
	var replaced atomic.Int32
	var e atomic.Pointer[Executor]
	ready := make(chan struct{})
	f := start(t, func(o *Options) {
		tell := o.Events
		o.Events = func(event Event) {
			if r, ok := event.(WorkerReady); ok {
				<-ready
				if replaced.Add(1) <= 2 {
					if err := e.Load().Replace(r.Service, errWrong); err != nil {
						t.Error(err)
					}
					return
				}
			}
			tell(event)
		}
	}, "")
	e.Store(f.Executor)
	close(ready)
	awaitEvent(f, func(e WorkerReady) bool { return e.Service == models.ServiceID(0) })
	if state, _ := f.State(0); state.Starts != 3 {
		t.Errorf("%d starts", state.Starts)
	}
}

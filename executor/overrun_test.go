package executor

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// A span that does not end is set apart: the round is over for the others, rounds
// run beside it, and how it ends is delivered when it has.
func TestSpanIsSetApart(t *testing.T) {
	f := startReady(t, nil, 2)
	until := filepath.Join(t.TempDir(), "end")
	long := f.whole(0, 1, "1 await "+until)
	round := f.send(long, f.whole(1, 2, "short"))
	for !f.endedOne(round) {
		time.Sleep(time.Millisecond)
	}
	if !f.SetApart(round) || f.SetApart(round) {
		t.Fatal("a round was not set apart once")
	}
	o := f.receive()
	if o.Round != round || o.Overrun || o.Spans[0].Status != models.SpanOverrun || o.Spans[1].Status != models.SpanDone {
		t.Fatalf("%+v", o)
	}
	texts(o.Spans[1])
	if s := f.do(f.whole(1, 3, "beside")); s.Status != models.SpanDone || texts(s)[0] != "beside0123" {
		t.Fatalf("%+v", s)
	}
	if err := os.WriteFile(until, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	o = f.receive()
	if o.Round != round || !o.Overrun || len(o.Spans) != 1 || o.Spans[0].Span != long.Span || !o.Spans[0].Finished {
		t.Fatalf("%+v", o)
	}
	texts(o.Spans[0])
	if f.SetApart(round) {
		t.Error("a round that has ended was set apart")
	}
}

// endedOne reports whether a span of a round has ended.
func (f *fixture) endedOne(id uint64) bool {
	for _, s := range *f.services.Load() {
		if w := s.ready(); w != nil {
			if r := w.round(id); r != nil {
				r.mu.Lock()
				defer r.mu.Unlock()
				return r.open < len(r.outcome.Spans)
			}
		}
	}
	return true
}

// The worker of a span for which nobody waits is ended.
func TestAbandonedSpanIsEnded(t *testing.T) {
	f := startReady(t, func(o *Options) { o.OverrunGrace = 50 * time.Millisecond }, 1)
	round := f.send(f.whole(0, 1, "1 signal "+t.TempDir()+"/never"))
	awaitEvent(f, WorkerOutput, nil)
	f.SetApart(round)
	if o := f.receive(); o.Spans[0].Status != models.SpanOverrun {
		t.Fatalf("%+v", o)
	}
	f.Abandon(0, 1)
	o := f.receive()
	if s := o.Spans[0]; !o.Overrun || s.Status != models.SpanCrashed || !errors.Is(s.Err, ErrOverrun) {
		t.Fatalf("%+v", o)
	}
	awaitEvent(f, WorkerLost, nil)
}

// It lives on if it reaches the end of an operator in time.
func TestAbandonedSpanStops(t *testing.T) {
	f := startReady(t, func(o *Options) { o.OverrunGrace = patience }, 1)
	until := filepath.Join(t.TempDir(), "end")
	f.send(f.whole(0, 2, "1 signal "+until))
	awaitEvent(f, WorkerOutput, nil)
	f.Abandon(0, 2)
	if err := os.WriteFile(until, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if s := f.receive().Spans[0]; s.Status != models.SpanStopped || s.Reached != 2 {
		t.Fatalf("%+v", s)
	}
	f.Release(0, 2)
	if s := f.do(f.whole(0, 3, "goes on")); s.Status != models.SpanDone || texts(s)[0] != "goes on0123" {
		t.Fatalf("%+v", s)
	}
}

// An executor that closes delivers what was set apart.
func TestCloseWithOverrun(t *testing.T) {
	f := startReady(t, func(o *Options) { o.CloseGrace = 10 * time.Millisecond }, 1)
	round := f.send(f.whole(0, 1, "1 signal "+t.TempDir()+"/never"))
	awaitEvent(f, WorkerOutput, nil)
	f.SetApart(round)
	f.receive()
	go f.Close()
	if o := f.receive(); !o.Overrun || o.Spans[0].Status != models.SpanLost {
		t.Fatalf("%+v", o)
	}
}

// Who receives the last outcomes gives back what they used while Close waits.
func TestCloseWaitsForTheLastReader(t *testing.T) {
	f := startReady(t, nil, 1)
	_, free := f.place(0, 1, "late")
	time.AfterFunc(20*time.Millisecond, free)
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// A worker that was gone when a span was to be sent has not died of it.
func TestUnsentSpanIsLost(t *testing.T) {
	for unsent, want := range map[bool]models.Status{true: models.SpanLost, false: models.SpanCrashed} {
		var got Outcome
		w := &worker{service: &service{executor: new(Executor)}}
		sent := flight{task: newRound(1, make([]SpanRequest, 1), func(o Outcome) { got = o }), unsent: unsent}
		w.mu.flights.push(sent, nil)
		w.failAll(ErrExited)
		if len(got.Spans) != 1 || got.Spans[0].Status != want {
			t.Errorf("unsent is %v: %+v, want %s", unsent, got, want)
		}
	}
}

// The outcome of a round that was set apart is delivered before that of its span.
func TestSetApartComesFirst(t *testing.T) {
	overruns := make(chan bool, 2)
	var r *round
	r = newRound(1, make([]SpanRequest, 1), func(o Outcome) {
		if !o.Overrun {
			go r.end(0)
			time.Sleep(10 * time.Millisecond)
		}
		overruns <- o.Overrun
	})
	r.setApart(func(int) bool { return true })
	if <-overruns || !<-overruns {
		t.Error("the outcome of the span came first")
	}
}

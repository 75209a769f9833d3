package executor

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

func TestRunBackToBack(t *testing.T) {
	f := startReady(t, nil, 1)
	batch := f.whole(0, 1, "abc", "", "xy")
	batch.Span.Size = 1
	s := f.do(batch)
	if got := texts(s); !slices.Equal(got, []string{"abc0123", "0123", "xy0123"}) || s.Queries[2].ID != 2 {
		t.Errorf("outputs %q: %+v", got, s)
	}
	// It may end before its first operator or after its last, and nowhere else.
	stopped := flight{span: models.Span{End: fakeOperators, Size: 1}, queries: make([]models.QueryID, 2), stopped: true}
	for reached := range fakeOperators {
		if err := stopped.check(&wire.Done{Reached: reached}, fakeOperators); (err == nil) != (reached == 0) {
			t.Errorf("back to back, ended at operator %d: %v", reached, err)
		}
	}
}

// The barrier: one outcome, when the slower of two services is done.
func TestRoundWaitsForTheGroup(t *testing.T) {
	gate := t.TempDir() + "/gate"
	f := startReady(t, nil, 2)
	round := f.send(f.whole(0, 1, "fast"), f.whole(1, 2, "3 await "+gate))
	select {
	case o := <-f.Outcomes():
		t.Fatalf("too early: %+v", o)
	default:
	}
	touch(t, gate)
	o := f.receive()
	if o.Round != round || len(o.Spans) != 2 || o.Took <= 0 {
		t.Fatalf("%+v", o)
	}
	for i, s := range o.Spans {
		if s.Status != models.SpanDone || s.Span.Service != models.ServiceID(i) {
			t.Errorf("span %d: %+v", i, s)
		}
		texts(s)
	}
}

// The spans of a round run on one thread each where there are not two cores for each, and
// one that runs alone on all.
func TestSpansShareTheCores(t *testing.T) {
	for cores, marked := range map[int]string{0: "a0123", 2: "a0'1'2'3'", 3: "a0'1'2'3'", 4: "a0123"} {
		t.Run(strconv.Itoa(cores), func(t *testing.T) {
			f := startReady(t, func(o *Options) { o.Cores = cores }, 2)
			first := f.whole(0, 1, "a")
			first.Whole = true
			f.send(first, f.whole(1, 2, "a"))
			for i, s := range f.receive().Spans {
				if got := texts(s); !slices.Equal(got, []string{marked}) {
					t.Errorf("span %d of 2: %q, expected %q", i, got, marked)
				}
			}
			if got := texts(f.do(f.whole(0, 3, "a"))); !slices.Equal(got, []string{"a0123"}) {
				t.Errorf("alone: %q", got)
			}
		})
	}
}

// When the first span of a round on shared cores has ended, the others end at their next
// operator, unless the round is to be measured as it is.
func TestSharedRoundEndsTogether(t *testing.T) {
	for _, whole := range []bool{false, true} {
		t.Run(fmt.Sprintf("whole %t", whole), func(t *testing.T) {
			first, gate := t.TempDir()+"/first", t.TempDir()+"/gate"
			f := startReady(t, func(o *Options) { o.Cores = 2 }, 2)
			short, long := f.whole(0, 1, "1 await "+first), f.whole(1, 2, "1 signal "+gate)
			short.Span.End, short.Whole, long.Whole = 2, whole, whole
			f.send(short, long)
			awaitEvent(f, WorkerOutput, func(e Event) bool { return e.Line == "waiting" })
			touch(t, first)
			w := f.service(1).ready()
			stopped := func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return w.mu.flights.list[0].stopped
			}
			for end := time.Now().Add(patience); !whole && !stopped() && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			touch(t, gate)
			o := f.receive()
			if s := o.Spans[0]; s.Status != models.SpanDone || s.Reached != 2 {
				t.Errorf("the short one: %+v", s)
			}
			want := SpanOutcome{SpanOutcome: models.SpanOutcome{Status: models.SpanStopped, Reached: 2}}
			if whole {
				want.Status, want.Reached = models.SpanDone, fakeOperators
			}
			if s := o.Spans[1]; s.Status != want.Status || s.Reached != want.Reached {
				t.Errorf("the long one: %+v, expected %+v", s, want)
			}
			if whole {
				texts(o.Spans[1])
				return
			}
			long.Span.Start, long.Queries = 2, nil
			if s := f.do(long); s.Status != models.SpanDone || !slices.Equal(texts(s), []string{"1 signal " + gate + "0'1'23"}) {
				t.Errorf("the rest: %+v", s)
			}
		})
	}
}

func TestStopEndsOnlyItsBatch(t *testing.T) {
	gate := t.TempDir() + "/gate"
	f := startReady(t, nil, 1)
	f.send(f.whole(0, 1, "1 signal "+gate))
	awaitEvent(f, WorkerOutput, func(e Event) bool { return e.Line == "waiting" })
	f.send(f.whole(0, 2, "other"))
	if !f.Stop(0, 1) || f.Stop(0, 9) || f.Stop(5, 1) {
		t.Fatal("Stop did not find what is in flight, or found what is not")
	}
	touch(t, gate)
	first, second := f.receive().Spans[0], f.receive().Spans[0]
	if first.Status != models.SpanStopped || first.Finished || first.Reached != 2 {
		t.Errorf("stopped batch: %+v", first)
	}
	if second.Status != models.SpanDone {
		t.Errorf("other batch: %+v", second)
	}
	texts(second)
	// What was stopped can go on.
	s := f.do(SpanRequest{Span: models.Span{Batch: 1, Start: first.Reached, End: 4}})
	if got := texts(s); len(got) != 1 || !strings.HasSuffix(got[0], "0123") {
		t.Errorf("%q, %+v", got, s)
	}
	if f.Stop(0, 1) {
		t.Error("nothing is in flight any more")
	}
}

func TestReleasedBatchIsGone(t *testing.T) {
	f := startReady(t, nil, 1)
	first := f.whole(0, 1, "a")
	first.Span.End = 1
	f.do(first)
	f.Release(0, 1)
	f.Release(0, 1)
	f.Release(7, 1)
	s := f.do(SpanRequest{Span: models.Span{Batch: 1, Start: 1, End: 4}})
	if s.Status != models.SpanLost || !errors.Is(s.Err, ErrBatchLost) {
		t.Fatalf("%+v", s)
	}
	// The same number may be used for a new batch.
	if s := f.do(f.whole(0, 1, "b")); s.Status != models.SpanDone {
		t.Fatalf("%+v", s)
	} else {
		texts(s)
	}
}

func TestRunRefuses(t *testing.T) {
	f := startReady(t, nil, 1)
	good := f.whole(0, 1, "a")
	outside := f.whole(0, 1, "a")
	outside.Queries[0].Inputs[0].Offset = 1 << 40
	none := good
	none.Queries = nil
	late := good
	late.Span.Start = 1
	empty := good
	empty.Span.End = 0
	foreign := good
	foreign.Span.Service = 3
	for name, c := range map[string]struct {
		spans []SpanRequest
		want  error
	}{
		"no spans":         {nil, ErrBadSpan},
		"same service":     {[]SpanRequest{good, good}, ErrBadSpan},
		"input outside":    {[]SpanRequest{outside}, ErrBadSpan},
		"start, no query":  {[]SpanRequest{none}, ErrBadSpan},
		"query in middle":  {[]SpanRequest{late}, ErrBadSpan},
		"empty span":       {[]SpanRequest{empty}, ErrBadSpan},
		"unknown service":  {[]SpanRequest{foreign}, ErrUnknownService},
		"good and foreign": {[]SpanRequest{good, foreign}, ErrUnknownService},
	} {
		if err := f.Run(1, c.spans); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	long := good
	long.Span.End = fakeOperators + 1
	if s := f.do(long); s.Status != models.SpanFailed || !errors.Is(s.Err, ErrBadSpan) {
		t.Errorf("beyond the last operator: %+v", s)
	}
	tall := f.whole(0, 1, "a")
	tall.Queries[0].Inputs[0].Shape = make([]int64, wire.MaxRank+1)
	if s := f.do(tall); s.Status != models.SpanFailed || !errors.Is(s.Err, wire.ErrMessage) {
		t.Errorf("rank: %+v", s)
	}
}

func TestRoundsAreBounded(t *testing.T) {
	f := startReady(t, nil, 1)
	span := f.whole(0, 1, "a")
	for round := range uint64(MaxRounds) {
		span.Span.Batch = models.BatchID(round)
		f.send(span)
	}
	if err := f.Run(99, []SpanRequest{span}); !errors.Is(err, ErrTooManyRounds) {
		t.Fatal(err)
	}
	for range MaxRounds {
		texts(f.receive().Spans[0])
	}
	if s := f.do(span); s.Status != models.SpanDone {
		t.Fatalf("%+v", s)
	} else {
		texts(s)
	}
}

// A frame larger than the socket takes at once goes through the writer.
func TestLargeFrames(t *testing.T) {
	gate := t.TempDir() + "/gate"
	f := startReady(t, nil, 1)
	f.send(f.whole(0, 1000, "0 await "+gate))
	small := f.query(0, 0, "q")
	for batch := range models.BatchID(8) {
		queries := make([]wire.QueryTensors, 2000)
		for i := range queries {
			queries[i] = small
		}
		f.send(SpanRequest{Span: models.Span{Batch: batch, End: 1, Size: len(queries)}, Queries: queries})
		f.Release(0, batch)
	}
	touch(t, gate)
	texts(f.receive().Spans[0])
	for range 8 {
		if s := f.receive().Spans[0]; s.Status != models.SpanDone || s.Reached != 1 {
			t.Fatalf("%+v", s)
		}
	}
}

func TestCloseEndsWhatRuns(t *testing.T) {
	f := startReady(t, func(o *Options) { o.CloseGrace = 1 }, 1)
	f.send(f.whole(0, 1, "1 signal "+t.TempDir()+"/never"))
	f.send(f.whole(0, 2, "a"))
	awaitEvent(f, WorkerOutput, func(e Event) bool { return e.Line == "waiting" })
	f.Close()
	for round := uint64(1); round <= 2; round++ {
		o := f.receive()
		if s := o.Spans[0]; o.Round != round || s.Status != models.SpanLost || !errors.Is(s.Err, ErrClosed) {
			t.Errorf("round %d: %+v", round, o)
		}
	}
	if _, open := <-f.Outcomes(); open {
		t.Error("Outcomes is not closed")
	}
	if err := f.Run(3, nil); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if err := errors.Join(f.Close(), f.Start(t.Context())); !errors.Is(err, ErrClosed) || strings.Count(err.Error(), ErrClosed.Error()) != 2 {
		t.Error(err)
	}
}

// A worker that is let go stops at the next operator and exits by itself.
func TestCloseLetsWorkersGo(t *testing.T) {
	gate := t.TempDir() + "/gate"
	f := startReady(t, func(o *Options) { o.CloseGrace = patience }, 1)
	f.send(f.whole(0, 1, "1 signal "+gate))
	awaitEvent(f, WorkerOutput, func(e Event) bool { return e.Line == "waiting" })
	closed := make(chan error)
	go func() { closed <- f.Close() }()
	for !errors.Is(f.Run(2, nil), ErrClosed) {
		runtime.Gosched()
	}
	touch(t, gate)
	<-closed
	if s := f.receive().Spans[0]; s.Status != models.SpanStopped && s.Status != models.SpanDone {
		t.Errorf("%+v", s)
	} else {
		texts(s)
	}
	awaitEvent(f, WorkerStopped, nil)
}

func TestEngineFailureIsOnlyTheBatches(t *testing.T) {
	f := startReady(t, nil, 1)
	s := f.do(f.whole(0, 1, "2 fail because"))
	if s.Status != models.SpanFailed || !errors.Is(s.Err, wire.ErrEngine) || !strings.Contains(s.Err.Error(), "because") {
		t.Fatalf("%+v", s)
	}
	if s := f.do(f.whole(0, 1, "fine")); s.Status != models.SpanDone {
		t.Fatalf("%+v", s)
	} else {
		texts(s)
	}
	if state, _ := f.State(0); state.Starts != 1 {
		t.Errorf("the worker was started %d times", state.Starts)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	if _, err := New(Options{Services: []ServiceSpec{{ID: 1}}}); !errors.Is(err, ErrOptions) {
		t.Error(err)
	}
	spec := fakeSpec(1, "")
	if _, err := New(Options{Command: []string{"x"}, Services: []ServiceSpec{spec}}); !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), "no memory for inputs") {
		t.Errorf("without memory for inputs: %v", err)
	}
	spec.Inputs = newInputs()
	defer spec.Inputs.Close()
	if _, err := New(Options{Command: []string{"x"}, Services: []ServiceSpec{spec, spec}}); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
}

package emulated

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

var quick = formula{operator: 50 * time.Microsecond}

// slow takes longer than any test.
var slow = formula{operator: time.Hour}

func TestSpanAlone(t *testing.T) {
	r := startRig(t, quick)
	begin := time.Now()
	r.run(1, r.on(0, 1, 0, operators, 2))
	o := <-r.Outcomes()
	want := operators * 2 * quick.operator
	if passed := time.Since(begin); passed < want || o.Took < want || o.Took > passed {
		t.Errorf("it took %v and says %v, want at least %v", passed, o.Took, want)
	}
	s := o.Spans[0]
	if s.Status != models.SpanDone || !s.Finished || s.Reached != operators || s.DeviceTook != want || s.Took < want || s.Err != nil {
		t.Errorf("%+v", s)
	}
	if len(s.Queries) != 1 || s.Queries[0].ID != 100 || len(s.Queries[0].Outputs) != 1 {
		t.Fatalf("queries: %+v", s.Queries)
	}
	out := s.Queries[0].Outputs[0]
	if out.Type != models.Float32 || len(out.Shape) != 2 || out.Shape[0] != 2 || out.Shape[1] != Columns || !bytes.Equal(out.Data, make([]byte, 2*Columns*4)) {
		t.Errorf("output: %+v", out)
	}
	if state, err := r.State(0); err != nil || state.OutputLeases != 1 || state.Phase != executor.Ready || state.InFlight != 0 || state.PID != 0 {
		t.Errorf("%+v, %v", state, err)
	}
	s.Queries[0].Release()
	if state, _ := r.State(0); state.OutputLeases != 0 {
		t.Errorf("%d outputs are leased", state.OutputLeases)
	}
}

// The shorter span of a group ends in the proportion that it would alone.
func TestGroup(t *testing.T) {
	r := startRig(t, quick)
	r.run(1, r.on(0, 1, 0, operators, 1), r.on(1, 2, 0, operators, 1))
	o := r.next()
	want := quick.operator * operators * 5 / 2
	if o.Spans[1].DeviceTook != want || o.Spans[0].DeviceTook != want/2 || o.Took < want {
		t.Errorf("%v: %v and %v, want %v", o.Took, o.Spans[0].DeviceTook, o.Spans[1].DeviceTook, want)
	}
}

func TestStopEndsAtABoundary(t *testing.T) {
	r := startRig(t, formula{operator: 10 * time.Millisecond})
	r.run(1, r.on(0, 1, 0, operators, 8))
	if !r.Stop(0, 1) {
		t.Fatal("it does not run")
	}
	o := r.next()
	s := o.Spans[0]
	if s.Status != models.SpanStopped || s.Finished || s.Reached < 1 || s.Reached >= operators {
		t.Fatalf("%+v", s)
	}
	if want := time.Duration(s.Reached) * 80 * time.Millisecond; s.DeviceTook != want || o.Took < want {
		t.Errorf("stopped at operator %d after %v, want %v", s.Reached, s.DeviceTook, want)
	}
	if r.Stop(0, 1) || r.Stop(0, 2) || r.Stop(7, 1) {
		t.Error("what does not run can be stopped")
	}
	r.run(2, r.on(0, 1, s.Reached, s.Reached+1, 8)) // it goes on
	if s := r.next().Spans[0]; s.Status != models.SpanDone {
		t.Errorf("%+v", s)
	}
}

// What runs when the executor ends is lost, and told.
func TestCloseLosesRounds(t *testing.T) {
	for name, end := range map[string]func(*rig, context.CancelFunc){
		"close":   func(r *rig, _ context.CancelFunc) { _ = r.Close() }, // the inputs are in use
		"context": func(_ *rig, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, slow)
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if err := r.Start(ctx); err != nil {
				t.Fatal(err)
			}
			r.awaitReady(0, 1, 2)
			r.run(1, r.on(0, 1, 0, operators, 1), r.on(1, 2, 0, operators, 1))
			r.run(2, r.on(0, 3, 0, operators, 1))
			end(r, cancel)
			for range 2 {
				o := r.next()
				for _, s := range o.Spans {
					if s.Status != models.SpanLost || !errors.Is(s.Err, executor.ErrClosed) || s.Reached != 0 {
						t.Errorf("%d: %+v", o.Round, s)
					}
				}
			}
			if name == "context" {
				r.run(3, r.on(0, 4, 0, operators, 1))
				if s := r.next().Spans[0]; s.Status != models.SpanLost || !errors.Is(s.Err, executor.ErrNotReady) {
					t.Errorf("%+v", s)
				}
			}
		})
	}
}

// Rounds of one span on a share of the units, also of one service, end after their own time.
// A round on all units waits for them.
func TestRoundsBeside(t *testing.T) {
	f := formula{operator: 5 * time.Millisecond}
	r := startRig(t, f, func(o *executor.Options) {
		for i := range o.Services {
			o.Services[i].Load.Units = 3
		}
	})
	half := func(service models.ServiceID, batch models.BatchID, size int) executor.SpanRequest {
		s := r.on(service, batch, 0, operators, size)
		s.Span.Share = 1
		return s
	}
	begin := time.Now()
	r.run(1, half(0, 1, 8))
	r.run(2, half(0, 2, 4))
	r.run(3, half(1, 3, 1))
	r.run(4, r.on(0, 4, 0, operators, 1))
	for _, want := range []uint64{3, 2, 1, 4} {
		if o := r.next(); o.Round != want || o.Spans[0].Status != models.SpanDone {
			t.Fatalf("expected round %d: %+v", want, o)
		}
	}
	if passed, want := time.Since(begin), operators*9*f.operator; passed < want {
		t.Errorf("together they took %v, expected %v", passed, want)
	}
	r.run(5, half(0, 5, 8))
	r.run(6, half(0, 6, 1))
	if o := r.next(); o.Round != 6 {
		t.Fatalf("expected the short round: %+v", o)
	}
	if r.Stop(0, 5); r.next().Spans[0].Status != models.SpanStopped {
		t.Error("the long round was not stopped")
	}
}

package emulated

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// fourth is a service that a rig has not.
func fourth() executor.ServiceSpec { return service(3, "three", "a") }

// once returns a span of all operators, and what frees its input.
func (r *rig) once(id models.ServiceID, batch models.BatchID) (executor.SpanRequest, func()) {
	r.t.Helper()
	arena := r.arenas[id]
	offset, _, err := arena.Alloc(Columns * 4)
	if err != nil {
		r.t.Fatal(err)
	}
	return executor.SpanRequest{
			Span: models.Span{Service: id, Batch: batch, End: operators, Size: 1},
			Queries: []wire.QueryTensors{{ID: 1, Inputs: []wire.Tensor{
				{Type: models.Float32, Shape: []int64{1, Columns}, Offset: offset, Bytes: Columns * 4}}}},
		}, func() {
			if err := arena.Free(offset); err != nil {
				r.t.Error(err)
			}
		}
}

func (r *rig) remove(id models.ServiceID) <-chan struct{} {
	r.t.Helper()
	gone, err := r.Remove(id)
	if err != nil {
		r.t.Fatal(err)
	}
	return gone
}

// awaitRemoved returns when a service is gone.
func (r *rig) awaitRemoved(gone <-chan struct{}) {
	r.t.Helper()
	select {
	case <-gone:
	case <-time.After(patience):
		r.t.Fatal("the service does not go away")
	}
}

// of returns how many events a service has had, and whether the last one says
// that it is over.
func (r *rig) of(id models.ServiceID) (n int, over bool) {
	for _, e := range r.events() {
		if e.Service == id && (e.Kind == executor.WorkerReady || e.Kind == executor.WorkerStopped) {
			n, over = n+1, e.Kind == executor.WorkerStopped
		}
	}
	return n, over
}

func TestAddAndRemove(t *testing.T) {
	r := startRig(t, quick)
	for i := 1; i <= 3; i++ {
		if err := r.add(fourth()); err != nil {
			t.Fatal(err)
		}
		if err := r.Add(fourth()); !errors.Is(err, executor.ErrInUse) {
			t.Error("twice:", err)
		}
		span, free := r.once(3, 1)
		r.run(1, span)
		if s := r.next().Spans[0]; s.Status != models.SpanDone || !s.Finished {
			t.Errorf("%+v", s)
		}
		free()
		r.awaitRemoved(r.remove(3))
		if n, over := r.of(3); n != 2*i || !over {
			t.Errorf("%+v", r.events())
		}
		if _, err := r.Remove(3); !errors.Is(err, executor.ErrUnknownService) {
			t.Error(err)
		}
	}
	bad := fourth()
	bad.OutputBytes = -1
	if err := r.Add(bad); !errors.Is(err, wire.ErrArenaSize) {
		t.Error(err)
	}
}

// What runs is stopped or lost, in the round that runs and in those behind it; the other
// spans are not.
func TestRemoveWithSpansInFlight(t *testing.T) {
	r := startRig(t, formula{operator: time.Millisecond})
	if err := r.add(fourth()); err != nil {
		t.Fatal(err)
	}
	var frees []func()
	for round := uint64(1); round <= 2; round++ {
		one, free := r.once(3, models.BatchID(round))
		r.run(round, one, r.on(1, models.BatchID(10+round), 0, 1, 1))
		frees = append(frees, free)
	}
	gone := r.remove(3)
	if _, err := r.Remove(3); !errors.Is(err, executor.ErrRemoved) {
		t.Error("again:", err)
	}
	late, free := r.once(3, 3)
	r.run(3, late)
	for range 3 {
		o := r.next()
		if s := o.Spans[0]; s.Status != models.SpanStopped && (s.Status != models.SpanLost || !errors.Is(s.Err, executor.ErrRemoved)) || s.Finished {
			t.Errorf("round %d: %+v", o.Round, s)
		}
		if len(o.Spans) > 1 && o.Spans[1].Status != models.SpanDone {
			t.Errorf("beside it: %+v", o.Spans[1])
		}
	}
	for _, f := range append(frees, free) {
		f()
	}
	r.awaitRemoved(gone)
}

// A round of nothing but a service that is removed ends at once.
func TestRemoveEndsItsRound(t *testing.T) {
	r := startRig(t, slow)
	if err := r.add(fourth()); err != nil {
		t.Fatal(err)
	}
	span, free := r.once(3, 1)
	r.run(1, span)
	gone := r.remove(3)
	if s := r.next().Spans[0]; s.Status != models.SpanLost {
		t.Errorf("%+v", s)
	}
	free()
	r.awaitRemoved(gone)
}

// A model that the device does not know is not loaded, and what it knows is said.
func TestUnknownModel(t *testing.T) {
	r := startRig(t, quick, func(o *executor.Options) { o.RestartLimit = 1 })
	bad := fourth()
	bad.Load.ModelPath = "third"
	if err := r.Add(bad); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		state, err := r.State(3)
		if err != nil || time.Now().After(deadline) {
			t.Fatal("it is not given up: ", state, err)
		}
		if state.Phase == executor.GivenUp {
			if !errors.Is(state.Err, executor.ErrLoad) || !strings.Contains(state.Err.Error(), `"third"; it knows ["a" "b" "c"]`) {
				t.Error(state.Err)
			}
			return
		}
	}
}

func TestAddBeforeStart(t *testing.T) {
	r := newRig(t, quick)
	if err := r.Add(fourth()); err != nil {
		t.Fatal(err)
	}
	r.awaitRemoved(r.remove(0))
	if err := r.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	r.awaitReady(3)
	span, free := r.once(3, 1)
	defer free()
	r.run(1, span)
	if s := r.next().Spans[0]; s.Status != models.SpanDone {
		t.Errorf("%+v", s)
	}
	if n, _ := r.of(0); n != 0 {
		t.Errorf("%+v", r.events())
	}
}

// Whatever is added, removed and run, each round has one outcome.
func TestAnyChanges(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := startRig(t, formula{operator: time.Microsecond, spread: 2})
		var sent, received uint64
		free := map[uint64]func(){}
		var gone <-chan struct{}
		present := false
		receive := func() {
			received++
			o := r.next()
			if free[o.Round] == nil {
				rt.Fatalf("round %d has another outcome", o.Round)
			}
			free[o.Round]()
			delete(free, o.Round)
		}
		settle := func() {
			for received < sent {
				receive()
			}
			if gone != nil {
				r.awaitRemoved(gone)
				gone, present = nil, false
			}
		}
		rt.Repeat(map[string]func(*rapid.T){
			"run": func(rt *rapid.T) {
				if sent-received == executor.MaxRounds {
					receive()
				}
				sent++
				one, freeOne := r.once(0, models.BatchID(sent))
				spans, frees := []executor.SpanRequest{one}, []func(){freeOne}
				if present && gone == nil && rapid.Bool().Draw(rt, "with") {
					other, freeOther := r.once(3, models.BatchID(sent))
					spans, frees = append(spans, other), append(frees, freeOther)
				}
				free[sent] = func() {
					for _, f := range frees {
						f()
					}
				}
				r.run(sent, spans...)
			},
			"receive": func(*rapid.T) {
				if received < sent {
					receive()
				}
			},
			"add": func(rt *rapid.T) {
				if gone != nil {
					settle()
				}
				if err := r.add(fourth()); (err == nil) == present {
					rt.Fatal(err)
				}
				present = true
			},
			"remove": func(rt *rapid.T) {
				channel, err := r.Remove(3)
				if (err == nil) != (present && gone == nil) {
					rt.Fatal(err)
				}
				if err == nil {
					gone = channel
				}
			},
		})
		settle()
		if err := r.Close(); err != nil {
			rt.Error(err)
		}
	})
}

package emulated

import (
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
			Queries: []wire.QueryTensors{{ID: 1, Inputs: []models.Tensor{
				{Type: models.Float32, Shape: []int64{1, Columns}, Offset: offset, Bytes: Columns * 4}}}},
		}, func() {
			if err := arena.Free(offset); err != nil {
				r.t.Error(err)
			}
		}
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
			if !errors.Is(state.Err, executor.ErrLoad) || !strings.Contains(state.Err.Error(), `"third"; it has ["a" "b" "c"]`) {
				t.Error(state.Err)
			}
			return
		}
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

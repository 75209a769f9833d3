package emulated

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// moving returns two devices between which batches of their services move.
func moving(t *testing.T) (from, to *rig, memory *wire.InputArena) {
	t.Helper()
	memory, err := wire.NewMoveArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan executor.Outcome, 2*executor.MaxOutcomes)
	shared := func(o *executor.Options) {
		o.Outcomes = outcomes
		for i := range o.Services {
			o.Services[i].Moves = memory
		}
	}
	from = startRig(t, quick, shared)
	to = startRig(t, quick, shared, func(o *executor.Options) {
		o.Device = 1
		for i := range o.Services {
			o.Services[i].Inputs = from.arenas[i]
		}
	})
	return from, to, memory
}

// A batch is on its way for as long as is planned, in which both devices run others, and
// goes on where it stood.
func TestMove(t *testing.T) {
	const planned = 30 * time.Millisecond
	from, to, memory := moving(t)
	request := executor.SpanRequest{Span: models.Span{Batch: 1, End: 4, Size: 3}, Queries: from.inputs(0, 1, 1, 2)}
	from.run(1, request)
	from.next()
	request.Span.Start, request.Span.End = 4, operators
	if err := executor.Move(2, from.Executor, to.Executor, request, planned); err != nil {
		t.Fatal(err)
	}
	from.run(3, from.on(0, 2, 0, 1, 1))
	to.run(4, from.on(0, 3, 0, 1, 1))
	last := map[uint64]executor.Outcome{}
	for range 3 {
		o := from.next()
		last[o.Round] = o
		if s := o.Spans[0]; s.Status != models.SpanDone {
			t.Fatalf("%v %+v", s.Err, o)
		}
		if len(last) < 3 && o.Moved && o.Took < planned {
			t.Errorf("it came after %v", o.Took)
		}
	}
	if o := last[2]; !o.Moved || o.Took < planned || o.Spans[0].Reached != 4 || memory.Used() != 0 {
		t.Errorf("%+v, %d bytes are in use", o, memory.Used())
	}
	request.Queries = nil
	to.run(5, request)
	o := <-from.Outcomes()
	if s := o.Spans[0]; !s.Finished || len(s.Queries) != 2 || s.Queries[1].Outputs[0].Shape[0] != 2 || s.DeviceTook != 6*3*quick.operator {
		t.Errorf("%+v", s)
	}
	for i := range o.Spans[0].Queries {
		o.Spans[0].Queries[i].Release()
	}
}

// A move that would take longer than anyone waits ends with the device that it is from.
func TestMoveEndsWithItsDevice(t *testing.T) {
	from, to, _ := moving(t)
	request := executor.SpanRequest{Span: models.Span{Batch: 1, End: 4, Size: 1}, Queries: from.inputs(0, 1, 1)}
	from.run(1, request)
	from.next()
	request.Span.Start, request.Span.End = 4, operators
	if err := executor.Move(2, from.Executor, to.Executor, request, time.Hour); err != nil {
		t.Fatal(err)
	}
	_ = from.Executor.Close()
	if o := from.next(); !o.Moved {
		t.Errorf("%+v", o)
	}
}

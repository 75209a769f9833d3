package worker

import (
	"errors"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// pause starts a batch that is at operator 2.
func (w *workerTest) pause(id models.BatchID) {
	w.t.Helper()
	w.send(&wire.Run{Batch: id, End: 2, Size: 1, Queries: []wire.QueryTensors{w.query(1, "abc")}})
	expect[*wire.Done](w)
}

// value is what the fake engine moves, at an offset.
func value(offset int64) []models.Tensor {
	return []models.Tensor{{Type: models.Uint8, Shape: []int64{1}, Offset: offset, Bytes: 1}}
}

func TestServeMoves(t *testing.T) {
	w := startLoaded(t, func(w *workerTest) { w.engine.copies = true })
	w.pause(7)
	w.send(&wire.Move{Round: 1, Batch: 7, Start: 2})
	if m := expect[*wire.Moved](w); m.Round != 1 || m.Batch != 7 || m.Cut != 7 || len(m.Values) != 1 || m.Values[0].Bytes != 1 {
		t.Fatalf("%+v", m)
	}
	w.send(&wire.Move{Round: 1, Batch: 7, Start: 2, Step: wire.MoveExport, Values: value(128)})
	if m := expect[*wire.Moved](w); m.Round != 1 || m.Batch != 7 || w.outputs.Held() != 0 {
		t.Fatalf("%+v, %d bytes are held", m, w.outputs.Held())
	}
	w.send(&wire.Run{Batch: 7, Start: 2, End: 4})
	if f := expect[*wire.Failed](w); !errors.Is(f.Err(), wire.ErrUnknownBatch) {
		t.Errorf("after it went: %v", f.Err())
	}
	w.send(&wire.Move{Round: 2, Batch: 8, Start: 2, Step: wire.MoveImport, Cut: 7, Values: value(128), Queries: []wire.QueryTensors{w.query(1, "abc")}})
	if m := expect[*wire.Moved](w); m.Round != 2 || m.Batch != 8 || !m.Copied {
		t.Fatalf("%+v", m)
	}
	w.send(&wire.Run{Batch: 8, Start: 2, End: 4})
	d := expect[*wire.Done](w)
	if !d.Finished() {
		t.Fatalf("%+v", d)
	}
	if _, data, err := w.outputs.Acquire(&d.Outputs[0][0]); err != nil || string(data) != "efg" {
		t.Errorf("%q, %v", data, err)
	}
}

// A step that cannot be taken is answered, and leaves no batch behind.
func TestServeAnswersBadMoves(t *testing.T) {
	w := startLoaded(t, nil)
	q := []wire.QueryTensors{w.query(1, "abc")}
	outside := []wire.QueryTensors{w.query(2, "abc")}
	outside[0].Inputs[0].Offset = w.inputs.Bytes()
	misshapen := value(0)
	misshapen[0].Shape = []int64{2}
	for name, c := range map[string]struct {
		move  wire.Move
		pause bool
		want  error
	}{
		"unknown batch":       {wire.Move{Start: 2}, false, wire.ErrUnknownBatch},
		"unknown to export":   {wire.Move{Start: 2, Step: wire.MoveExport}, false, wire.ErrUnknownBatch},
		"elsewhere":           {wire.Move{Start: 3}, true, wire.ErrSpanOrder},
		"export elsewhere":    {wire.Move{Start: 3, Step: wire.MoveExport}, true, wire.ErrSpanOrder},
		"exported outside":    {wire.Move{Start: 2, Step: wire.MoveExport, Values: value(w.moves.Bytes())}, true, wire.ErrMove},
		"exported misshapen":  {wire.Move{Start: 2, Step: wire.MoveExport, Values: misshapen}, true, wire.ErrMove},
		"there already":       {wire.Move{Start: 2, Step: wire.MoveImport, Queries: q}, true, wire.ErrBatchExists},
		"at the end":          {wire.Move{Start: fakeOperators, Step: wire.MoveImport, Queries: q}, false, wire.ErrSpanOrder},
		"imported outside":    {wire.Move{Start: 2, Step: wire.MoveImport, Queries: q, Values: value(w.moves.Bytes())}, false, wire.ErrMove},
		"inputs from outside": {wire.Move{Start: 2, Step: wire.MoveImport, Queries: outside}, false, wire.ErrInput},
	} {
		if c.pause {
			w.pause(9)
		}
		c.move.Batch = 9
		w.send(&c.move)
		if f := expect[*wire.Failed](w); !errors.Is(f.Err(), c.want) || f.Batch != 9 || len(w.engine.batches) != 0 {
			t.Errorf("%s: %v, %d batches", name, f.Err(), len(w.engine.batches))
		}
	}
}

// An engine that fails forgets the batch; where that means that the device is lost, the
// worker ends.
func TestServeAnswersFailedMoves(t *testing.T) {
	for _, at := range []string{"describe", "export", "import"} {
		w := startLoaded(t, nil)
		for _, fault := range []error{wire.ErrMove, wire.ErrDeviceLost} {
			w.engine.fail = map[string]error{at: fault}
			move := wire.Move{Batch: 1, Start: 2}
			switch at {
			case "export":
				move.Step, move.Values = wire.MoveExport, value(0)
			case "import":
				move.Step, move.Values, move.Queries = wire.MoveImport, value(0), []wire.QueryTensors{w.query(1, "abc")}
			}
			if at != "import" {
				w.pause(1)
			}
			w.send(&move)
			if f := expect[*wire.Failed](w); !errors.Is(f.Err(), fault) || len(w.engine.batches) != 0 {
				t.Errorf("%s: %v, %d batches", at, f.Err(), len(w.engine.batches))
			}
		}
		w.end(wire.ErrDeviceLost)
	}
}

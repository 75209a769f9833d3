package segments

import (
	"bytes"
	"encoding/binary"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// convolutions is a small net that takes images of any size.
func convolutions() *graph {
	g := newGraph()
	g.input("x", models.Float32, 1, 1, open, open)
	g.floats("w1", []int64{16, 1, 3, 3}, ones(16*9)...)
	g.floats("w2", []int64{16, 16, 3, 3}, ones(16*16*9)...)
	g.node("Conv", list("x", "w1"), list("a"))
	g.node("Conv", list("a", "w2"), list("b"))
	g.node("GlobalMaxPool", list("b"), list("y"))
	g.output("y", models.Float32)
	return g
}

func ones(n int) []float32 {
	list := make([]float32, n)
	for i := range list {
		list[i] = 1
	}
	return list
}

// uneven is a net whose first operator needs much to work in, and whose last ones make
// much.
func uneven() *graph {
	g := newGraph()
	g.input("x", models.Float32, 1, 1, open, open)
	g.floats("w1", []int64{1, 1, 8, 8}, ones(64)...)
	g.floats("w2", []int64{32, 1, 1, 1}, ones(32)...)
	g.floats("w3", []int64{32, 32, 1, 1}, ones(32*32)...)
	g.node("ConvTranspose", list("x", "w1"), list("a"))
	g.node("Conv", list("a", "w2"), list("b"))
	g.node("Conv", list("b", "w3"), list("c"))
	g.node("GlobalMaxPool", list("c"), list("y"))
	g.output("y", models.Float32)
	return g
}

// looped is a loop that keeps so many numbers of each of its trips, and then takes all
// of them at once.
func looped(kept int64) *graph {
	g := newGraph()
	g.input("trips", models.Int64, 1)
	g.weights("go on", models.Bool, []int64{}, []byte{1})
	g.floats("kept", []int64{kept}, make([]float32, kept)...)
	body := newGraph()
	body.input("i", models.Int64)
	body.input("condition", models.Bool)
	body.node("Identity", list("condition"), list("next condition"))
	body.node("Neg", list("kept"), list("scanned"))
	body.output("next condition", models.Bool)
	body.output("scanned", models.Float32)
	g.node("Loop", list("trips", "go on"), list("all"), graphAttribute("body", body))
	g.node("ReduceMax", list("all"), list("y"), intAttribute("keepdims", 0))
	g.output("y", models.Float32)
	return g
}

func images(t *testing.T, side int64) wire.QueryTensors {
	return query(t, floatView([]int64{1, 1, side, side}, make([]float32, side*side)...))
}

func trips(t *testing.T, n uint64) wire.QueryTensors {
	return query(t, models.Tensor{Type: models.Int64, Shape: []int64{1}, Data: binary.LittleEndian.AppendUint64(nil, n)})
}

// TestBudgetOfOperators runs queries for which operators take more than the budget,
// within one of them or all together, with shapes that are new and with others paused.
// Nothing is taken beyond the budget, and what fits is right before and after.
func TestBudgetOfOperators(t *testing.T) {
	const budget = 4 << 20
	for name, test := range map[string]struct {
		model       *graph
		fits, large func(t *testing.T) wire.QueryTensors
	}{
		"convolution": {
			convolutions(),
			func(t *testing.T) wire.QueryTensors { return images(t, 32) },
			func(t *testing.T) wire.QueryTensors { return images(t, 512) },
		},
		"loop": {
			looped(4096),
			func(t *testing.T) wire.QueryTensors { return trips(t, 8) },
			func(t *testing.T) wire.QueryTensors { return trips(t, 100_000) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := openCut(t, openEnv(t), Config{Path: test.model.write(t), IntermediateBytes: budget})
			fits, large := test.fits(t), test.large(t)
			defer thaw(fits)
			defer thaw(large)
			want, err := runAll(m, 1, fits)
			if err != nil {
				t.Fatal(err)
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			base := m.loaded.env.ThreadBytes() - (m.IntermediateBytes() - m.pool.used)
			peak := m.loaded.env.ThreadPeak()
			works := func() {
				t.Helper()
				if got, err := runAll(m, 1, fits); err != nil || !bytes.Equal(got[0][0].data, want[0][0].data) {
					t.Errorf("what fits: %v, %v", got, err)
				}
			}
			for range 2 {
				works()
				_, err := runAll(m, 2, large)
				if !errors.Is(err, wire.ErrTooLarge) || !strings.Contains(err.Error(), "worker.intermediate_bytes") {
					t.Fatalf("alone: %v", err)
				}
				works()
				if err := m.Start(3, []wire.QueryTensors{fits}); err != nil {
					t.Fatal(err)
				}
				if _, err := m.Run(3, 0, 1, new(uint32)); err != nil {
					t.Fatal(err)
				}
				if _, err := runAll(m, 2, large); !errors.Is(err, wire.ErrMemory) || errors.Is(err, wire.ErrTooLarge) {
					t.Errorf("beside another batch: %v", err)
				}
				m.Release(3)
			}
			if took := peak() - base; took > budget {
				t.Errorf("%d bytes were taken of a budget of %d", took, budget)
			}
		})
	}
}

// TestBudgetOfRecords runs a loop that keeps one number of each of its trips: what the
// runtime must remember of them is fifty times as much.
func TestBudgetOfRecords(t *testing.T) {
	m := openCut(t, openEnv(t), Config{Path: looped(1).write(t), IntermediateBytes: 64 << 20})
	few, many := trips(t, 1000), trips(t, 3_000_000)
	defer thaw(few)
	defer thaw(many)
	for range 2 {
		if _, err := runAll(m, 1, few); err != nil {
			t.Error(err)
		}
		if _, err := runAll(m, 1, many); !errors.Is(err, wire.ErrTooLarge) || !strings.Contains(err.Error(), "records") {
			t.Errorf("three million numbers: %v", err)
		}
	}
}

// TestBudgetIsSteady runs each size of image twice, from what fits well to what does
// not: whatever ran once, when its shapes were learned, runs again.
func TestBudgetIsSteady(t *testing.T) {
	m := openCut(t, openEnv(t), Config{Path: uneven().write(t), IntermediateBytes: 4 << 20})
	ran, refused := 0, 0
	for side := int64(40); side < 200; side += 5 {
		q := images(t, side)
		_, first := runAll(m, 1, q)
		_, second := runAll(m, 1, q)
		thaw(q)
		if (first == nil) != (second == nil) {
			t.Errorf("side %d: first %v, then %v", side, first, second)
		}
		if first == nil {
			ran++
		} else {
			refused++
		}
	}
	if ran < 5 || refused < 5 {
		t.Errorf("%d sizes ran, %d were refused", ran, refused)
	}
}

package predictor

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSnapshotRoundTrip(t *testing.T) {
	solo := newSolo(t, 2)
	set(t, solo, 0, 1, 16, 1*ms, 2*ms)
	observe(t, solo, 2, span(0, 0, 2, 4, 16), 9*ms)
	before, err := solo.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(before)
	if err != nil {
		t.Fatal(err)
	}
	var read Snapshot
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	restored := newSolo(t, 2)
	if err := restored.Restore(0, read); err != nil {
		t.Fatal(err)
	}
	after, _ := restored.Snapshot(0)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Error(diff)
	}
	observe(t, restored, 1, span(0, 0, 2, 4, 16), 9*ms) // its third
	near(t, restored, span(0, 0, 2, 4, 16), 9*ms)
}

func TestSnapshotIsACopy(t *testing.T) {
	solo := newSolo(t, 1)
	set(t, solo, 0, 1, 0, 1*ms)
	s, _ := solo.Snapshot(0)
	if err := solo.Restore(0, s); err != nil {
		t.Fatal(err)
	}
	s.Cells[0].Nanos[0] = 5
	near(t, solo, span(0, 0, 1, 1, 0), 1*ms)
}

func TestRestoreRefuses(t *testing.T) {
	damages := map[string]func(*Snapshot){
		"operators":    func(s *Snapshot) { s.Operators = 3 },
		"few times":    func(s *Snapshot) { s.Cells[1].Nanos = []float64{1} },
		"many times":   func(s *Snapshot) { s.Cells[1].Nanos = []float64{1, 2, 3} },
		"NaN":          func(s *Snapshot) { s.Cells[1].Nanos[1] = math.NaN() },
		"infinite":     func(s *Snapshot) { s.Cells[1].Nanos[1] = math.Inf(1) },
		"negative":     func(s *Snapshot) { s.Cells[1].Nanos[1] = -1 },
		"zero":         func(s *Snapshot) { s.Cells[1].Nanos[1] = 0 },
		"absurd":       func(s *Snapshot) { s.Cells[1].Nanos[1] = 2 * maxNanos },
		"size":         func(s *Snapshot) { s.Cells[1].Size = 0 },
		"large size":   func(s *Snapshot) { s.Cells[1].Size = MaxSize + 1 },
		"seq len":      func(s *Snapshot) { s.Cells[1].SeqLen = -1 },
		"observations": func(s *Snapshot) { s.Cells[1].Observations = 0 },
		"NaN cut":      func(s *Snapshot) { s.Cut = math.NaN() },
		"negative cut": func(s *Snapshot) { s.Cut = -1 },
		"twice":        func(s *Snapshot) { s.Cells[1] = s.Cells[0] },
		"cells":        func(s *Snapshot) { s.Cells = make([]cellSnapshot, MaxCells+1) },
	}
	for name, damage := range damages {
		solo := newSolo(t, 2)
		set(t, solo, 0, 1, 0, 1*ms, 2*ms)
		set(t, solo, 0, 2, 0, 2*ms, 4*ms)
		s, _ := solo.Snapshot(0)
		damage(&s)
		if err := solo.Restore(0, s); !errors.Is(err, errSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
		near(t, solo, span(0, 0, 2, 2, 0), 6*ms)
	}
	solo := newSolo(t, 2)
	if err := solo.Restore(1, Snapshot{}); !errors.Is(err, errRange) {
		t.Errorf("unknown service: %v", err)
	}
	if _, err := solo.Snapshot(-1); !errors.Is(err, errRange) {
		t.Errorf("unknown service: %v", err)
	}
}

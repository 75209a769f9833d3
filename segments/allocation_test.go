package segments

import (
	"testing"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// maxSteadyAllocations bounds what one whole batch allocates once its layout
// is known: the batch, its key and shapes, a value for each input, and what
// the outputs are described with.
const maxSteadyAllocations = 30

func TestRunAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, open := range opens {
		t.Run(name, func(t *testing.T) { expectNoAllocations(t, open(t)) })
	}
}

// opens are the devices on which allocations are counted.
var opens = map[string]func(t *testing.T) *CutModel{
	"CPU": func(t *testing.T) *CutModel {
		m, _ := openTiny(t, "tiny_cnn", Config{})
		return m
	},
	"GPU": func(t *testing.T) *CutModel {
		m, _ := openGPU(t, "tiny_cnn", Config{}, fakeSpec{})
		return m
	},
}

func expectNoAllocations(t *testing.T, m *CutModel) {
	q := queryOf(t, m, 1, 0)
	if _, err := runAll(m, 1, q); err != nil {
		t.Fatal(err)
	}
	if err := m.Start(1, []wire.QueryTensors{q}); err != nil {
		t.Fatal(err)
	}
	var stop uint32
	b := m.pool.batches[1]
	n := testing.AllocsPerRun(100, func() {
		b.next = 0
		for p := range m.loaded.sessions {
			if _, err := m.Run(1, p, p+1, &stop); err != nil {
				t.Fatal(err)
			}
		}
	})
	if n != 0 {
		t.Errorf("running all operators one by one allocates %v times", n)
	}
}

func TestBatchAllocatesLittle(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for name, open := range opens {
		t.Run(name, func(t *testing.T) { expectFewAllocations(t, open(t)) })
	}
}

func expectFewAllocations(t *testing.T, m *CutModel) {
	q := queryOf(t, m, 1, 0)
	queries := []wire.QueryTensors{q}
	room := make([]byte, 1<<16)
	out := func(_, _ int, _ models.DataType, _ []int64, n int64) ([]byte, error) { return room[:n], nil }
	whole := func() {
		if err := m.Start(1, queries); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Run(1, 0, len(m.loaded.sessions), nil); err != nil {
			t.Fatal(err)
		}
		if err := m.Finish(1, out); err != nil {
			t.Fatal(err)
		}
	}
	whole()
	n := testing.AllocsPerRun(100, whole)
	t.Logf("%v allocations", n)
	if n > maxSteadyAllocations {
		t.Errorf("a batch allocates %v times, at most %d were expected", n, maxSteadyAllocations)
	}
}

package cuda_test

import (
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
)

// TestUnknownIsNotZero writes null for readings that nobody took.
func TestUnknownIsNotZero(t *testing.T) {
	text, err := json.Marshal(cuda.Device{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"memory", "power_limit_watts", "compute_mode", "persistence", "ecc", "processes"} {
		if !strings.Contains(string(text), `"`+name+`":null`) {
			t.Errorf("%s is not null in %s", name, text)
		}
	}
	known, err := json.Marshal(cuda.Reading[int]{Known: true})
	if err != nil || string(known) != "0" {
		t.Errorf("%s, %v", known, err)
	}
}

func TestPlacementOverlaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) cuda.Placement {
			return cuda.Placement{Start: rapid.IntRange(0, 8).Draw(t, name), Size: rapid.IntRange(1, 8).Draw(t, name+" size")}
		}
		p, q := draw("p"), draw("q")
		shared := false
		for i := p.Start; i < p.Start+p.Size; i++ {
			shared = shared || i >= q.Start && i < q.Start+q.Size
		}
		if p.Overlaps(q) != shared || q.Overlaps(p) != shared {
			t.Fatalf("%s and %s: %t", p, q, p.Overlaps(q))
		}
	})
}

// TestCloseWaits closes the library under the calls of many goroutines. The
// fake answers a call after its Shutdown with a failure of the test.
func TestCloseWaits(t *testing.T) {
	s := fakegpu.New(fakegpu.H100)
	h, err := cuda.Open(s)
	if err != nil {
		t.Fatal(err)
	}
	var late sync.Once
	s.OnCall = func(call string) {
		if s.Closed() {
			late.Do(func() { t.Errorf("%s was called after the library was closed", call) })
		}
	}
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			for {
				if _, err := h.Sample(s.Devices[0].UUID); err != nil {
					return
				}
			}
		})
	}
	for s.Calls() < 1000 {
		if _, err := h.Facts(); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	callers.Wait()
}

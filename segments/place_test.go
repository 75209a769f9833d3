package segments

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestPlaceKeepsLiveBuffersApart places random buffers in each order.
func TestPlaceKeepsLiveBuffersApart(t *testing.T) {
	for name, place := range map[string]func([]lifetime) int64{
		"best": place, "by birth": placeByBirth, "by size": placeBySize,
	} {
		t.Run(name, func(t *testing.T) { checkPlace(t, place) })
	}
}

func checkPlace(t *testing.T, place func([]lifetime) int64) {
	rapid.Check(t, func(t *rapid.T) {
		buffers := make([]lifetime, rapid.IntRange(0, 40).Draw(t, "buffers"))
		var sum int64
		for i := range buffers {
			first := rapid.IntRange(0, 20).Draw(t, "first")
			buffers[i] = lifetime{
				bytes: rapid.Int64Range(0, 500).Draw(t, "bytes"),
				first: first,
				last:  first + rapid.IntRange(0, 10).Draw(t, "steps"),
			}
			sum += aligned(buffers[i].bytes)
		}
		total := place(buffers)
		if total > sum {
			t.Fatalf("%d bytes for buffers of %d", total, sum)
		}
		for i, a := range buffers {
			if a.offset < 0 || a.offset%tensorAlign != 0 || a.offset+a.bytes > total {
				t.Fatalf("buffer %d lies at %d of %d", i, a.offset, total)
			}
			for j, b := range buffers[:i] {
				together := a.first <= b.last && b.first <= a.last
				overlap := a.offset < b.offset+b.bytes && b.offset < a.offset+a.bytes
				if together && overlap {
					t.Fatalf("buffers %d %+v and %d %+v share memory", i, a, j, b)
				}
			}
		}
	})
}

// TestPlaceTakesTheBetterOrder holds where one order does better, and the
// other where there are too many buffers for it.
func TestPlaceTakesTheBetterOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		buffers := make([]lifetime, rapid.IntRange(0, 20).Draw(t, "buffers"))
		for i := range buffers {
			first := rapid.IntRange(0, 20).Draw(t, "first")
			buffers[i] = lifetime{bytes: rapid.Int64Range(0, 5000).Draw(t, "bytes"), first: first, last: first + 3}
		}
		total := place(slices.Clone(buffers))
		if birth, size := placeByBirth(slices.Clone(buffers)), placeBySize(slices.Clone(buffers)); total != min(birth, size) {
			t.Fatalf("%d bytes, by birth %d, by size %d", total, birth, size)
		}
	})
	many := make([]lifetime, maxPlacedBySize+1)
	if total := place(many); total != int64(len(many))*tensorAlign {
		t.Errorf("%d bytes for %d empty buffers", total, len(many))
	}
}

func TestPlaceReuses(t *testing.T) {
	chain := make([]lifetime, 100)
	for i := range chain {
		chain[i] = lifetime{bytes: 1000, first: i, last: i + 1}
	}
	if total, want := place(chain), 2*aligned(1000); total != want {
		t.Errorf("a chain of 100 takes %d bytes, expected %d", total, want)
	}
}

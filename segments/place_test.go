package segments

import (
	"testing"

	"pgregory.net/rapid"
)

func TestPlaceKeepsLiveBuffersApart(t *testing.T) {
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

func TestPlaceReuses(t *testing.T) {
	chain := make([]lifetime, 100)
	for i := range chain {
		chain[i] = lifetime{bytes: 1000, first: i, last: i + 1}
	}
	if total, want := place(chain), 2*aligned(1000); total != want {
		t.Errorf("a chain of 100 takes %d bytes, expected %d", total, want)
	}
}

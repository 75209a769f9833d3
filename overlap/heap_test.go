package overlap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type heapItem struct{ key, pos int }

// The heap gives its items back in order, whichever are taken out or changed
// in between, and each knows its place.
func TestHeap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := heap[*heapItem]{
			before: func(a, b *heapItem) bool { return a.key < b.key },
			moved:  func(i *heapItem, pos int) { i.pos = pos },
		}
		var in []*heapItem
		key := rapid.IntRange(0, 50)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				if err := h.check(func(i *heapItem) int { return i.pos }); err != nil {
					t.Fatal(err)
				}
			},
			"push": func(t *rapid.T) {
				i := &heapItem{key: key.Draw(t, "key")}
				h.push(i)
				in = append(in, i)
			},
			"remove": func(t *rapid.T) {
				if len(in) == 0 {
					return
				}
				at := rapid.IntRange(0, len(in)-1).Draw(t, "item")
				if got := h.remove(in[at].pos); got != in[at] || got.pos != -1 {
					t.Fatalf("removed %+v for %+v", got, in[at])
				}
				in = slices.Delete(in, at, at+1)
			},
			"change": func(t *rapid.T) {
				if len(in) == 0 {
					return
				}
				i := rapid.SampledFrom(in).Draw(t, "item")
				i.key = key.Draw(t, "key")
				h.fix(i.pos)
			},
		})
		slices.SortFunc(in, func(a, b *heapItem) int { return a.key - b.key })
		for _, want := range in {
			if got := h.pop(); got.key != want.key {
				t.Fatalf("popped %d, want %d", got.key, want.key)
			}
		}
		if h.len() != 0 {
			t.Fatalf("%d items are left", h.len())
		}
	})
}

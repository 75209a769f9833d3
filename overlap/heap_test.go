package overlap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
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

// The index finds what a map would.
func TestIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x index
		want := map[models.QueryID]*query{}
		ids := rapid.Custom(func(t *rapid.T) models.QueryID {
			// Multiples of a large power of two share their home.
			return models.QueryID(rapid.Uint64Range(1, 200).Draw(t, "id") << rapid.SampledFrom([]int{0, 40}).Draw(t, "shift"))
		})
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			id := ids.Draw(t, "query")
			if want[id] == nil {
				want[id] = &query{queryState: queryState{Query: models.Query{ID: id}}}
				x.put(want[id])
			} else {
				delete(want, id)
				x.remove(id)
			}
			if x.get(id) != want[id] || x.count != len(want) {
				t.Fatalf("query %d: %v of %d, want %v of %d", id, x.get(id), x.count, want[id], len(want))
			}
		}
		for id, q := range want {
			if x.get(id) != q {
				t.Fatalf("query %d is not found", id)
			}
		}
	})
}

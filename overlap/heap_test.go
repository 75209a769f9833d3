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

// A walk visits all items in order, whatever joined and left since the last one, and
// however far that went.
func TestWalk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := heap[*heapItem]{
			before: func(a, b *heapItem) bool { return a.key < b.key },
			moved:  func(i *heapItem, pos int) { i.pos = pos },
		}
		w, key := newWalk(&h), 0
		for range rapid.IntRange(1, 10).Draw(t, "rounds") {
			for range rapid.IntRange(0, 2*walkMost).Draw(t, "pushed") {
				key = (key*5 + 7) % (1 << 16) // visits each once
				item := &heapItem{key: key}
				h.push(item)
				w.joined(item)
			}
			for range rapid.IntRange(0, h.len()).Draw(t, "removed") {
				item := h.items[0]
				if rapid.Bool().Draw(t, "any") {
					item = h.items[h.len()/2]
				}
				w.left(item)
				h.remove(item.pos)
			}
			want := slices.SortedFunc(slices.Values(h.items), func(a, b *heapItem) int { return a.key - b.key })
			steps := rapid.IntRange(0, len(want)).Draw(t, "steps")
			w.start()
			for i := range steps {
				if got, ok := w.top(); !ok || got != want[i] {
					t.Fatalf("step %d of %d: %v, want %v", i, len(want), got, want[i])
				}
				w.pass()
			}
			if _, more := w.top(); more != (steps < len(want)) {
				t.Fatalf("after %d of %d there is more: %t", steps, len(want), more)
			}
		}
	})
}

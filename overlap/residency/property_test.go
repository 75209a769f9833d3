package residency

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// world does what a daemon does with a set, in random order, and holds it to its promises.
type world struct {
	*Set
	t       *rapid.T
	now     time.Duration
	loads   []int // under way
	leaves  []int
	bytes   map[int]int64
	grown   bool         // a model took more than was predicted
	pending map[int]bool // models with unanswered queries
	log     []Step
}

const modelsInWorld = 6

func newWorld(t *rapid.T) *world {
	w := &world{Set: New(100, rapid.IntRange(0, 3).Draw(t, "places"), rapid.IntRange(1, 2).Draw(t, "loads")), t: t, bytes: map[int]int64{}, pending: map[int]bool{}}
	for id := range modelsInWorld {
		w.put(id)
	}
	return w
}

func (w *world) put(id int) {
	m := Model{
		Target: time.Duration(rapid.IntRange(1, 20).Draw(w.t, "target")) * 100 * time.Millisecond,
		Bytes:  rapid.Int64Range(1, 110).Draw(w.t, "bytes"),
		Load:   time.Duration(rapid.IntRange(1, 10).Draw(w.t, "load")) * 100 * time.Millisecond,
	}
	w.Put(w.now, id, m)
	w.bytes[id] = m.Bytes
}

// act carries out what is to be done.
func (w *world) act() {
	for {
		step, ok := w.Next(w.now)
		if !ok {
			break
		}
		w.log = append(w.log, step)
		if step.Load {
			w.loads = append(w.loads, step.Model)
			if n := len(w.resident) + len(w.loading); n > w.places {
				w.t.Fatalf("%d models are in memory, and there are %d places", n, w.places)
			}
			if !w.grown && w.used > w.limit {
				w.t.Fatalf("%d bytes are taken", w.used)
			}
			continue
		}
		if w.pending[step.Model] {
			w.t.Fatalf("model %d is evicted with queries", step.Model)
		}
		w.leaves = append(w.leaves, step.Model)
	}
	if err := w.check(); err != nil {
		w.t.Fatal(err)
	}
}

// step does one random thing.
func (w *world) step() {
	w.now += time.Duration(rapid.IntRange(0, 3000).Draw(w.t, "ms")) * time.Millisecond
	id := rapid.IntRange(0, modelsInWorld-1).Draw(w.t, "model")
	switch rapid.IntRange(0, 9).Draw(w.t, "what") {
	case 0, 1, 2:
		if w.State(id) == InMemory {
			w.pending[id] = true
			w.Seen(w.now, id, 1, true)
		} else if a := w.Ask(w.now, id, w.models[id].Target); a.Wait {
			if s := w.State(id); s != Waiting && s != Loading && s != Leaving {
				w.t.Fatalf("a query waits for model %d in state %d", id, w.State(id))
			}
		} else if a.After <= 0 && w.models[id].Bytes <= w.limit {
			w.t.Fatalf("a rejected query is answered %v", a)
		}
	case 3:
		if w.State(id) == InMemory {
			delete(w.pending, id)
			w.Seen(w.now, id, 0, false)
		}
	case 4, 5:
		w.finish()
	case 6:
		w.put(id)
	case 7:
		if rapid.Bool().Draw(w.t, "load") {
			w.Load(w.now, id)
		} else if !w.pending[id] {
			w.Evict(w.now, id)
		}
	case 8:
		if w.State(id) == InMemory && !slices.Contains(w.leaves, id) {
			w.bytes[id] = rapid.Int64Range(1, 120).Draw(w.t, "grown")
			w.grown = true
			w.Loaded(w.now, id, w.bytes[id])
		}
	case 9:
		if i := slices.Index(w.loads, id); i >= 0 {
			w.loads = slices.Delete(w.loads, i, i+1)
			w.Failed(w.now, id)
		}
	}
	w.act()
}

// finish ends what is under way, the loads or the evictions.
func (w *world) finish() {
	for _, id := range w.leaves {
		w.Gone(w.now, id)
	}
	w.leaves = nil
	if len(w.loads) > 0 {
		id := w.loads[0]
		w.loads = w.loads[1:]
		w.Loaded(w.now, id, w.models[id].Bytes)
	}
}

// TestRandom holds sets to the invariants, whatever happens in whatever order. After the last query no
// model stays between disk and memory, and what is evicted makes enough room.
func TestRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			w.step()
		}
		for id := range modelsInWorld {
			delete(w.pending, id)
			if w.State(id) == InMemory {
				w.Seen(w.now, id, 0, false)
			}
		}
		for range 10 * modelsInWorld {
			w.now += time.Minute
			w.finish()
			w.act()
			for id := range modelsInWorld {
				if w.State(id) == InMemory {
					w.Seen(w.now, id, 0, false)
				}
			}
		}
		for id := range modelsInWorld {
			if s := w.State(id); s != OnDisk && s != InMemory {
				t.Fatalf("model %d stays in state %d", id, s)
			}
		}
		if w.used > w.limit {
			t.Fatalf("%d bytes are taken", w.used)
		}
	})
}

// TestNobodyIsLockedOut: of any models that are asked for again and again, each is in memory at some
// time, at the latest after a turn of each of the others.
func TestNobodyIsLockedOut(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(100, 0, 1)
		n := rapid.IntRange(2, 6).Draw(t, "models")
		bound, seen := time.Duration(0), make([]bool, n)
		rates := make([]int, n)
		for id := range n {
			m := Model{
				Target: time.Duration(rapid.IntRange(1, 20).Draw(t, "target")) * 100 * time.Millisecond,
				Bytes:  rapid.Int64Range(10, 100).Draw(t, "bytes"),
				Load:   time.Duration(rapid.IntRange(1, 10).Draw(t, "load")) * 100 * time.Millisecond,
			}
			s.Put(0, id, m)
			rates[id] = rapid.IntRange(1, 50).Draw(t, "rate")
			bound += s.period(s.models[id]) + 2*stay*m.Load
		}
		left := n
		for now := time.Duration(0); left > 0; now += time.Second / 2 {
			if now > bound+time.Minute {
				t.Fatalf("at %v, %d of %d models were never in memory", now, left, n)
			}
			for id := range n {
				if s.State(id) == InMemory {
					s.Seen(now, id, rates[id], false)
				} else {
					s.Ask(now, id, s.models[id].Target)
				}
				for {
					step, ok := s.Next(now)
					if !ok {
						break
					}
					if !step.Load {
						s.Gone(now, step.Model)
					}
				}
			}
			for _, e := range slices.Clone(s.loading) {
				if now-e.since >= e.Load {
					s.Loaded(now, e.id, e.Bytes)
					s.Seen(now, e.id, 0, false)
					if !seen[e.id] {
						seen[e.id] = true
						left--
					}
				}
			}
		}
	})
}

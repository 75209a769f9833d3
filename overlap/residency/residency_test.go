package residency

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"
)

// check returns the first invariant that does not hold.
func (s *Set) check() error {
	var used, leaving, promised int64
	lists := map[State][]*entry{Waiting: s.queue, Loading: s.loading, InMemory: s.resident}
	counts := map[State]int{}
	for id, e := range s.models {
		used += e.taken
		counts[e.state]++
		switch {
		case e.id != id:
			return fmt.Errorf("model %d is known as %d", e.id, id)
		case e.state == OnDisk && (e.taken != 0 || e.open):
			return fmt.Errorf("model %d is on disk, with %d bytes, open %v", id, e.taken, e.open)
		case e.state >= Loading && e.taken <= 0:
			return fmt.Errorf("model %d is in state %d without memory", id, e.state)
		case e.state == Leaving && e.Keep:
			return fmt.Errorf("model %d is evicted, although it is to be kept", id)
		case e.refused != slices.Contains(s.refused, e) || e.refused && e.state != OnDisk:
			return fmt.Errorf("model %d is refused: %v, in state %d", id, e.refused, e.state)
		}
		if list, listed := lists[e.state]; listed && !slices.Contains(list, e) {
			return fmt.Errorf("model %d is not in the list of its state %d", id, e.state)
		}
		if e.state == Leaving {
			leaving += e.taken
		}
		if e.state == Waiting && e.taken == 0 {
			promised += e.Bytes
		}
	}
	for state, list := range lists {
		if len(list) != counts[state] {
			return fmt.Errorf("%d models in the list of state %d, which %d have", len(list), state, counts[state])
		}
	}
	if used != s.used || leaving != s.leaving || promised != s.promised {
		return fmt.Errorf("taken %d, leaving %d, promised %d; the sums are %d, %d, %d", s.used, s.leaving, s.promised, used, leaving, promised)
	}
	if len(s.loading) > s.loads {
		return fmt.Errorf("%d models load at the same time", len(s.loading))
	}
	return nil
}

// script drives a set of models of 10 bytes each that take a second to load.
type script struct {
	*Set
	t   *testing.T
	now time.Duration
}

// cannotWait and canWait are targets of models whose queries cannot or can wait for a load.
const (
	cannotWait = time.Second
	canWait    = 10 * time.Second
)

func newScript(t *testing.T, bytes int64, targets ...time.Duration) *script {
	s := &script{Set: New(bytes, 0, 1), t: t}
	for id, target := range targets {
		s.Put(0, id, Model{Target: target, Bytes: 10, Load: time.Second})
	}
	return s
}

// ask asks for a model with the slack of its target.
func (s *script) ask(id int) Answer {
	s.t.Helper()
	a := s.Ask(s.now, id, s.models[id].Target)
	s.ok()
	return a
}

func (s *script) ok() {
	s.t.Helper()
	if err := s.check(); err != nil {
		s.t.Fatal(err)
	}
}

// steps returns what is to be done now.
func (s *script) steps() (list []Step) {
	s.t.Helper()
	for {
		step, ok := s.Next(s.now)
		s.ok()
		if !ok {
			return list
		}
		list = append(list, step)
	}
}

// settle carries out all steps, and answers all queries. Loads take as long as predicted.
func (s *script) settle() (done []Step) {
	s.t.Helper()
	for {
		list := s.steps()
		if len(list) == 0 {
			return done
		}
		done = append(done, list...)
		for _, step := range list {
			if step.Load {
				s.now += s.models[step.Model].Load
				s.Loaded(s.now, step.Model, s.models[step.Model].Bytes)
				s.Seen(s.now, step.Model, 0, false)
			} else {
				s.Gone(s.now, step.Model)
			}
			s.ok()
		}
	}
}

// has fails the test unless a model is in a state.
func (s *script) has(id int, want State) {
	s.t.Helper()
	if got := s.State(id); got != want {
		s.t.Fatalf("model %d is in state %d, not %d", id, got, want)
	}
}

// resident brings models into memory, after their protection.
func (s *script) load(ids ...int) {
	s.t.Helper()
	for _, id := range ids {
		if !s.Load(s.now, id) {
			s.t.Fatalf("model %d cannot be loaded", id)
		}
		s.settle()
		s.has(id, InMemory)
	}
	s.now += stay*time.Second + 1
}

// TestColdQuery: a query waits if it is in time even if the load takes 1.3 times as long as predicted.
// If it does not wait, the model is loaded all the same where there is room.
func TestColdQuery(t *testing.T) {
	for _, c := range []struct {
		slack time.Duration
		wait  bool
	}{{1300 * time.Millisecond, true}, {1299 * time.Millisecond, false}, {0, false}} {
		s := newScript(t, 10, canWait)
		if got, want := s.Ask(0, 0, c.slack), (Answer{c.wait, time.Second}); got != want {
			t.Errorf("slack %v: %v, want %v", c.slack, got, want)
		}
		if got := s.settle(); !slices.Equal(got, []Step{{0, true}}) {
			t.Errorf("slack %v: %v", c.slack, got)
		}
		if got := s.ask(0); !got.Wait || got.After != 0 {
			t.Errorf("a query of a model in memory: %v", got)
		}
	}
}

// TestQueue: answers count the loads before theirs, and nothing overtakes them.
func TestQueue(t *testing.T) {
	s := newScript(t, 100, canWait, canWait, canWait, cannotWait)
	s.turn = time.Hour
	for id := range 3 {
		if got, want := s.ask(id), (Answer{true, time.Duration(id+1) * time.Second}); got != want {
			t.Errorf("model %d: %v, want %v", id, got, want)
		}
	}
	s.ask(3) // which would be loaded, if others did not wait
	s.steps()
	s.now += 400 * time.Millisecond
	if got, want := s.ask(2), (Answer{true, 2600 * time.Millisecond}); got != want {
		t.Errorf("during the first load: %v, want %v", got, want)
	}
	if got := s.Ask(s.now, 2, 3*time.Second); got.Wait {
		t.Error("a query waits that will be late")
	}
	s.has(3, OnDisk)
	s.Loaded(s.now, 0, 10)
	if got := s.settle(); !slices.Equal(got, []Step{{1, true}, {2, true}}) {
		t.Errorf("got %v", got)
	}
}

// TestVictim: what goes is worth least for its bytes. A model for which queries can wait is worth less
// than one for which they cannot, even if it was used last.
func TestVictim(t *testing.T) {
	s := newScript(t, 30, cannotWait, canWait, cannotWait, canWait)
	s.load(0, 1, 2)
	s.Seen(s.now, 0, 10, false)
	s.Seen(s.now, 1, 10, false)
	s.Seen(s.now, 2, 20, false)
	s.ask(3)
	if got := s.settle(); !slices.Equal(got, []Step{{1, false}, {3, true}}) {
		t.Errorf("got %v", got)
	}

	s = newScript(t, 30, cannotWait, cannotWait, cannotWait, canWait)
	s.Put(0, 1, Model{Target: cannotWait, Bytes: 5, Load: time.Second})
	s.load(0, 1, 2)
	for id := range 3 {
		s.Seen(s.now, id, 10, false)
	}
	s.Put(0, 3, Model{Target: canWait, Bytes: 15, Load: time.Second})
	s.ask(3)
	if got := s.settle(); !slices.Equal(got, []Step{{0, false}, {3, true}}) {
		t.Errorf("not the model with the most bytes for its worth: %v", got)
	}
}

// TestNotEvicted: models with queries, and those to be kept, stay. Those just loaded give way only to
// a query that can wait.
func TestNotEvicted(t *testing.T) {
	for name, c := range map[string]struct {
		prepare             func(*script)
		forWorth, forUrgent bool
	}{
		"plain": {func(s *script) {}, true, true},
		"open":  {func(s *script) { s.Seen(s.now, 0, 0, true) }, false, false},
		"kept":  {func(s *script) { s.Put(s.now, 0, Model{Target: canWait, Bytes: 10, Load: time.Second, Keep: true}) }, false, false},
		"fresh": {func(s *script) { s.now -= stay * time.Second }, false, true},
	} {
		for _, urgent := range []bool{false, true} {
			s := newScript(t, 10, canWait, cannotWait, canWait)
			s.turn = time.Hour
			s.load(0)
			s.Seen(s.now, 1, 5, false) // it is worth more
			c.prepare(s)
			asked, want := 1, c.forWorth
			if urgent {
				asked, want = 2, c.forUrgent
			}
			s.ask(asked)
			s.settle()
			if got := s.State(asked) == InMemory; got != want {
				t.Errorf("%s, urgent %v: loaded %v", name, urgent, got)
			}
		}
	}
}

// TestMemoryHasAPrice: a model is not loaded because most of the bytes that it needs are free.
func TestMemoryHasAPrice(t *testing.T) {
	for _, free := range []int64{0, 9} {
		s := newScript(t, 20+free, cannotWait, cannotWait, cannotWait)
		s.turn = time.Hour
		s.Put(0, 1, Model{Target: cannotWait, Bytes: 1, Load: time.Second})
		s.load(0)
		s.Seen(s.now, 0, 100, false)
		s.load(1)
		s.Put(0, 2, Model{Target: cannotWait, Bytes: 10 + free, Load: time.Second})
		s.Seen(s.now, 1, 10, false)
		s.Seen(s.now, 2, 20, false) // more than the victim, but less for its bytes
		s.ask(2)
		if len(s.settle()) > 0 {
			t.Errorf("%d bytes free: loaded", free)
		}
	}
}

// TestPressure: the more queries that could wait are lost, the more models are worth that they wait for.
func TestPressure(t *testing.T) {
	s := newScript(t, 10, canWait, canWait)
	if s.lost() != 0 {
		t.Error("queries are lost before any came")
	}
	s.ask(0)
	s.settle()
	if s.lost() != 0 {
		t.Error("a query is lost that waited")
	}
	s.Seen(s.now, 0, 0, true)
	s.ask(1)
	if got := s.lost(); got < 0.7 || got > 0.8 { // one of two, and what it does to others
		t.Errorf("lost %v", got)
	}
}

// TestHysteresis: two models with room for one, whose queries cannot wait, load for at most one part in
// stay of the time, apart from their turns.
func TestHysteresis(t *testing.T) {
	s := newScript(t, 10, cannotWait, cannotWait)
	loads := 0
	for s.now < time.Hour {
		for id := range 2 {
			s.now += 100 * time.Millisecond
			if s.State(id) == InMemory {
				s.Seen(s.now, id, 1+int(s.now/time.Minute)%3*id, false)
			} else {
				s.ask(id)
			}
			loads += len(s.settle())
		}
	}
	if most := int(time.Hour / (stay * time.Second)); loads/2 > most {
		t.Errorf("%d loads, more than %d", loads/2, most)
	}
}

// TestTurns: a model that is worth too little is loaded at the latest when its clients were told.
func TestTurns(t *testing.T) {
	const n = 20
	s := newScript(t, 20, slices.Repeat([]time.Duration{cannotWait}, n)...)
	s.load(0, 1)
	told, left := [n]time.Duration{}, n
	seen := [n]bool{}
	for left > 0 {
		s.now += time.Second
		for id := range n {
			if s.State(id) == InMemory {
				if s.Seen(s.now, id, 1+1000*max(0, 2-id), false); !seen[id] {
					seen[id] = true
					left--
				}
				continue
			}
			a := s.ask(id)
			if a.Wait || a.After <= 0 || a.After > n*s.period(s.models[id]) {
				t.Fatalf("at %v model %d is answered %v", s.now, id, a)
			}
			if told[id] == 0 {
				told[id] = s.now + a.After
			}
			if !seen[id] && s.now > told[id]+time.Minute {
				t.Fatalf("at %v model %d had no turn; it was told %v", s.now, id, told[id])
			}
		}
		s.settle()
	}
}

// TestTurnLasts: not even a query that can wait ends the turn of a model early.
func TestTurnLasts(t *testing.T) {
	s := newScript(t, 10, canWait, cannotWait)
	s.load(0)
	s.absent, s.missed = 1, 1
	s.Seen(s.now, 0, 1000, false)
	s.ask(1)
	s.settle()
	s.has(1, InMemory)
	if s.now += (stay - 1) * time.Second; s.ask(0).Wait {
		t.Error("the turn is over already")
	}
	s.now += 2 * time.Second
	if !s.ask(0).Wait {
		t.Error("the turn is not over")
	}
}

// TestTurnPasses to others where kept models leave no room, and after a failure.
func TestTurnPasses(t *testing.T) {
	for _, fails := range []bool{false, true} {
		s := newScript(t, 20, cannotWait, cannotWait, cannotWait, cannotWait)
		s.load(0, 1)
		s.Put(s.now, 0, Model{Target: cannotWait, Bytes: 10, Load: time.Second, Keep: true})
		s.Seen(s.now, 1, 1000, false)
		s.turn = s.now + 1
		s.ask(2)
		if fails {
			s.models[2].retry = s.now + time.Hour
		} else {
			s.Put(s.now, 2, Model{Target: cannotWait, Bytes: 11, Load: time.Second})
		}
		s.now++
		for range 2 {
			s.ask(3)
		}
		s.settle()
		s.has(3, InMemory)
		s.has(2, OnDisk)
	}
}

// TestFailure: after a failed load a model is left alone for longer and longer. Others are not held up.
func TestFailure(t *testing.T) {
	s := newScript(t, 20, canWait, canWait)
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		s.ask(0)
		s.steps()
		s.Failed(s.now, 0)
		if got := s.ask(0); got != (Answer{After: want}) {
			t.Errorf("%v, want %v", got, want)
		}
		if s.ask(1); len(s.settle()) == 0 && s.State(1) != InMemory {
			t.Error("another model waits")
		}
		s.now += want
	}
	for range 100 {
		s.Failed(s.now, 0)
	}
	if got := s.ask(0).After; got != lastRetry {
		t.Errorf("%v after many failures", got)
	}
	s.now += lastRetry
	s.ask(0)
	s.settle()
	s.Failed(s.now, 0) // its worker was lost
	if got := s.ask(0).After; got != firstRetry {
		t.Errorf("%v after a success", got)
	}
}

// TestGrowth: if a model takes more memory than predicted, others go. One that is larger than the
// memory goes itself, and is not loaded again.
func TestGrowth(t *testing.T) {
	s := newScript(t, 30, cannotWait, cannotWait, cannotWait)
	s.load(0, 1, 2)
	s.Seen(s.now, 0, 1, false)
	s.Seen(s.now, 2, 2, false)
	s.Loaded(s.now, 2, 15)
	if got := s.settle(); !slices.Equal(got, []Step{{1, false}}) {
		t.Errorf("got %v", got)
	}
	s.Loaded(s.now, 2, 31)
	if got := s.settle(); !slices.Equal(got, []Step{{2, false}}) {
		t.Errorf("got %v", got)
	}
	if got := s.ask(2); got != (Answer{}) {
		t.Errorf("got %v", got)
	}
	if used, limit := s.Used(); used != 10 || limit != 30 {
		t.Errorf("%d of %d bytes", used, limit)
	}
}

// TestTooLarge: a model that never fits gets no turn, and holds up nobody.
func TestTooLarge(t *testing.T) {
	s := newScript(t, 10, cannotWait, cannotWait)
	s.Put(0, 0, Model{Target: canWait, Bytes: 11, Load: time.Second})
	if got := s.ask(0); got != (Answer{}) || s.Load(s.now, 0) {
		t.Errorf("got %v", got)
	}
	s.ask(1)
	s.settle()
	s.has(1, InMemory)
}

// TestPromiseIsKept: if there is no other room any more, a load that was promised evicts a model that
// has become protected since.
func TestPromiseIsKept(t *testing.T) {
	s := newScript(t, 10, cannotWait, cannotWait)
	s.load(0)
	s.Seen(s.now, 1, 1, false)
	s.turn = time.Hour
	s.ask(1)
	s.has(1, Waiting)
	s.models[0].fresh = time.Hour
	if got := s.settle(); !slices.Equal(got, []Step{{0, false}, {1, true}}) {
		t.Errorf("got %v", got)
	}
}

// TestBlocked: a load for which no memory becomes free is abandoned, so that others get theirs. It has
// time from when it is the first in the queue.
func TestBlocked(t *testing.T) {
	s := newScript(t, 20, canWait, canWait, canWait)
	s.load(0, 1)
	s.Put(s.now, 2, Model{Target: canWait, Bytes: 15, Load: time.Second})
	if !s.ask(2).Wait {
		t.Fatal("it does not wait")
	}
	s.Seen(s.now, 0, 1, true)
	s.now += time.Minute
	for range stay {
		if got := s.steps(); len(got) > 0 {
			t.Errorf("got %v", got)
		}
		s.has(2, Waiting)
		s.now += time.Second
	}
	s.now++
	s.steps()
	s.has(2, OnDisk)
}

// TestDelete in each state.
func TestDelete(t *testing.T) {
	for state := OnDisk; state <= Leaving; state++ {
		s := newScript(t, 10, canWait, canWait)
		if state >= Waiting {
			s.ask(0)
		}
		if state >= Loading {
			s.steps()
		}
		if state >= InMemory {
			s.Loaded(s.now, 0, 10)
		}
		if state >= Leaving {
			s.Evict(s.now, 0)
		}
		s.has(0, state)
		s.Delete(0)
		s.ok()
		if used, _ := s.Used(); used != 0 {
			t.Errorf("state %d: %d bytes are taken", state, used)
		}
		s.Loaded(s.now, 0, 10)
		s.Gone(s.now, 0)
		s.Failed(s.now, 0)
		s.Seen(s.now, 0, 1, true)
		s.Evict(s.now, 0)
		s.Delete(0)
		if s.Load(s.now, 0) || s.Ask(s.now, 0, canWait) != (Answer{}) || s.State(0) != OnDisk {
			t.Errorf("state %d: a deleted model is loaded", state)
		}
		s.ask(1)
		if got := s.settle(); !slices.Equal(got, []Step{{1, true}}) {
			t.Errorf("state %d: %v", state, got)
		}
	}
	s := newScript(t, 10, cannotWait, cannotWait)
	s.load(0)
	s.Seen(s.now, 0, 100, true)
	s.ask(1) // it is refused
	s.Delete(1)
	s.ok()
}

// TestExplicit loads and evictions need no worth.
func TestExplicit(t *testing.T) {
	s := newScript(t, 10, cannotWait, cannotWait)
	s.load(0)
	s.Seen(s.now, 0, 1000, false)
	s.load(1)
	s.has(0, OnDisk)
	s.Seen(s.now, 1, 1, true)
	if s.Load(s.now, 0) {
		t.Error("the model with queries is to go")
	}
	s.Evict(s.now, 1)
	if s.ask(1).Wait || s.Load(s.now, 1) {
		t.Error("a query waits for a model that leaves")
	}
	s.settle()
	s.has(1, OnDisk)
	s.ask(0)
	s.Evict(s.now, 0)
	s.has(0, OnDisk)
	if got := s.settle(); len(got) > 0 {
		t.Errorf("got %v", got)
	}
}

// TestLoadsAtOnce: several models load at the same time, and their queries are answered so.
func TestLoadsAtOnce(t *testing.T) {
	s := New(100, 0, 2)
	for id := range 4 {
		s.Put(0, id, Model{Target: canWait, Bytes: 10, Load: time.Second})
	}
	for id, want := range []time.Duration{1000, 1500, 2000, 2500} {
		if got := s.Ask(0, id, canWait); got != (Answer{true, want * time.Millisecond}) {
			t.Errorf("model %d: %v", id, got)
		}
	}
	for id := range 2 {
		if step, ok := s.Next(0); !ok || step != (Step{id, true}) {
			t.Errorf("got %v, %v", step, ok)
		}
	}
	if step, ok := s.Next(0); ok {
		t.Errorf("got %v", step)
	}
}

// TestLongRun: rates keep their values when weights are rescaled.
func TestLongRun(t *testing.T) {
	s := newScript(t, 100, cannotWait)
	e := s.models[0]
	for range 300 * 60 {
		s.now += 20 * time.Second
		s.Seen(s.now, 0, 10, false)
	}
	if got := s.worth(e, 0); got < 0.49 || got > 0.52 {
		t.Errorf("%v queries/s", got)
	}
	s.now += 1000 * time.Hour
	s.advance(s.now)
	if got := s.worth(e, 0); got != 0 {
		t.Errorf("%v queries/s long after the last", got)
	}
}

// TestHeap returns candidates in order.
func TestHeap(t *testing.T) {
	s := newScript(t, 1000)
	for id := range 50 {
		s.Put(0, id, Model{Target: cannotWait, Bytes: 10, Load: time.Second})
		s.load(id)
		s.Seen(s.now, id, id*7919%13, false)
	}
	s.now += time.Hour
	s.gather(s.now, false)
	var list []candidate
	for len(s.candidates) > 0 {
		list = append(list, s.candidates.pop())
	}
	if len(list) != 50 || !slices.IsSortedFunc(list, candidate.compare) {
		t.Errorf("%d candidates are not in order", len(list))
	}
	if cmp.Compare(list[0].density, list[49].density) >= 0 {
		t.Error("all are worth the same")
	}
}

package text

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
)

// A request of several texts waits for the one before it, a request of one does not, and one
// that is too late costs the queue nothing.
func TestGate(t *testing.T) {
	text := textOf(t, "mean", "no", 8)
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, text)
		f.hold = true
		s := f.server()
		ended := make(chan string, 4)
		ask := func(name string, limit time.Duration, texts int) {
			r := f.request(slices.Repeat([]string{name}, texts)...)
			r.Options = timeout(limit)
			go func() {
				a, err := s.Answer(t.Context(), r)
				if err != nil {
					ended <- name + " " + err.Reason
					return
				}
				a.Release()
				ended <- name
			}()
			synctest.Wait()
		}
		held := func(want int) {
			t.Helper()
			if synctest.Wait(); len(f.held) != want {
				t.Fatalf("%d queries are held, want %d", len(f.held), want)
			}
		}
		ask("a", 8*time.Second, 6) // the gate lets 4 through
		ask("b", 8*time.Second, 2)
		ask("c", time.Second, 3)
		ask("d", 8*time.Second, 1)
		held(5)
		time.Sleep(2 * time.Second)
		if got := <-ended; got != "c "+query.ReasonDeadline {
			t.Errorf("ended: got %s", got)
		}
		counted := f.service.Stats.Counts().TurnedAway[slices.Index(query.TurnedAwayFor[:], query.ReasonDeadline)]
		if counted != 3 {
			t.Errorf("%d texts are counted as too late, want 3", counted)
		}
		f.answerHeld(nil)
		f.answerHeld(nil)
		held(5) // the rest of a
		f.answerHeld(nil)
		f.answerHeld(nil)
		held(5) // b follows
		for range 5 {
			f.answerHeld(nil)
		}
		synctest.Wait()
		got := []string{<-ended, <-ended, <-ended}
		if slices.Sort(got); !slices.Equal(got, []string{"a", "b", "d"}) {
			t.Errorf("ended: got %v", got)
		}
	})
}

// A request that would be late is rejected when its turn comes, by what the last ones took. What was
// learned expires: after some rejections one is tried.
func TestHopeless(t *testing.T) {
	g := newGate()
	if g.hopeless(1000, 0) {
		t.Error("a first request is rejected")
	}
	for range 30 {
		g.learn(100, time.Second)
	}
	if g.hopeless(50, 0) {
		t.Error("it is rejected although no other is being answered")
	}
	g.admit(t.Context(), 1)
	if g.hopeless(50, 600*time.Millisecond) || !g.hopeless(50, 400*time.Millisecond) {
		t.Error("half of the tokens take half a second")
	}
	rejected := 0
	for g.hopeless(50, 400*time.Millisecond) {
		rejected++
	}
	if rejected != mostHopeless-1 {
		t.Errorf("%d more are rejected, want %d", rejected, mostHopeless-1)
	}
	for range 30 {
		g.learn(100, 100*time.Millisecond)
	}
	if g.hopeless(50, 400*time.Millisecond) {
		t.Error("it does not learn that requests have become faster")
	}
}

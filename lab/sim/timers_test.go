package sim

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// TestTimersComeInOrder pushes and pops at random, and finds each time the
// earliest, of one instant the kinds in their order, of one kind the first.
func TestTimersComeInOrder(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	h := timers{ordered: ordered[timer]{before: timer.before}}
	var all []timer
	for range 5000 {
		if len(all) > 0 && r.IntN(3) == 0 {
			first := slices.MinFunc(all, func(a, b timer) int {
				switch {
				case a.before(b):
					return -1
				case b.before(a):
					return 1
				}
				return 0
			})
			got := h.pop()
			if got != first {
				t.Fatalf("popped %+v, the first is %+v", got, first)
			}
			all = slices.DeleteFunc(all, func(x timer) bool { return x == got })
			continue
		}
		x := timer{at: time.Duration(r.IntN(20)), kind: timerKind(r.IntN(3)), query: r.IntN(100)}
		h.push(x)
		x.seq = h.seq
		all = append(all, x)
	}
}

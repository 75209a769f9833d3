package sim

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// TestLeast compares a tournament with a list that is searched from end to end.
func TestLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for positions := 1; positions < 70; positions++ {
		l, list := newLeast(positions), slices.Repeat([]int64{math.MaxInt64}, positions)
		for range 200 {
			i, number := r.IntN(positions), r.Int64N(20)
			list[i] = number
			l.set(i, number)
			if got, want := l.smallest(), slices.Min(list); got != want {
				t.Fatalf("the smallest of %v is %d", list, got)
			}
			from, most := r.IntN(positions+1), r.Int64N(20)
			want := slices.IndexFunc(list[from:], func(n int64) bool { return n <= most })
			if want >= 0 {
				want += from
			}
			if got := l.next(from, most); got != want {
				t.Fatalf("the first of %v from %d with at most %d is at %d, want %d", list, from, most, got, want)
			}
		}
	}
}

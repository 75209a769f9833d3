package structure

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// limit is how much of something a package or type may have. Those above have more: as much as when
// the limit was made, and never more. An entry goes when it is within the limit.
type limit struct {
	what   string
	most   int
	advice string
	above  map[string]int
}

// held is a limit that a test applies.
type held struct {
	limit
	t    *testing.T
	seen map[string]int
}

// in returns the limit for a test, which fails at its end if an entry is not needed any more.
func (l limit) in(t *testing.T) *held {
	h := &held{l, t, map[string]int{}}
	t.Cleanup(func() {
		for _, name := range slices.Sorted(maps.Keys(l.above)) {
			if n := h.seen[name]; n <= l.most {
				t.Errorf("%s: %d %s are within the limit: delete its entry", name, n, l.what)
			}
		}
	})
	return h
}

// hold fails the test if there is too much of something.
func (h *held) hold(name string, n int, which ...string) {
	h.t.Helper()
	h.seen[name] = n
	if most := max(h.most, h.above[name]); n > most {
		h.t.Errorf("%s: %d %s, the limit is %d: %s %s", name, n, h.what, most, h.advice, strings.Join(which, ", "))
	}
}

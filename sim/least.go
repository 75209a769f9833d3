package sim

import (
	"iter"
	"math"
	"time"
)

// least holds a number for each of some positions in a tournament tree: the smallest is
// at the root, and a change takes as many steps as the tree is high. Each inner node at
// i holds the smaller number of those at 2i and 2i+1.
type least struct {
	tree   []int64
	leaves int
}

// newLeast returns one for so many positions, all with the largest number there is.
func newLeast(positions int) least {
	leaves := 1
	for leaves < positions {
		leaves *= 2
	}
	l := least{tree: make([]int64, 2*leaves), leaves: leaves}
	for i := range l.tree {
		l.tree[i] = math.MaxInt64
	}
	return l
}

func (l *least) set(position int, number int64) {
	at := l.leaves + position
	l.tree[at] = number
	for at > 1 {
		at /= 2
		smaller := min(l.tree[2*at], l.tree[2*at+1])
		if l.tree[at] == smaller {
			return
		}
		l.tree[at] = smaller
	}
}

// smallest returns the smallest number.
func (l *least) smallest() int64 { return l.tree[1] }

// next returns the first position from one on whose number is at most so much, -1 if
// there is none.
func (l *least) next(from int, most int64) int {
	if from >= l.leaves {
		return -1
	}
	at := l.leaves + from
	for l.tree[at] > most {
		for at&1 == 1 { // nothing more below its parent
			at /= 2
		}
		if at == 0 {
			return -1
		}
		at++
	}
	for at < l.leaves {
		if at *= 2; l.tree[at] > most {
			at++
		}
	}
	return at - l.leaves
}

// until yields the positions whose number is no later than a time, in their order, as
// they are when their turn comes.
func (l *least) until(now time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := l.next(0, int64(now)); i >= 0 && yield(i); i = l.next(i+1, int64(now)) {
		}
	}
}

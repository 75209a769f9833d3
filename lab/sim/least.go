package sim

import (
	"iter"
	"math"
	"time"
)

// least stores a number for each of several positions in a tournament tree. The smallest
// number is at the root, and a change takes as many steps as the tree is high. The inner
// node i holds the smaller number of the nodes 2i and 2i+1.
type least struct {
	tree   []int64
	leaves int
}

// newLeast returns a least for the given number of positions. All numbers are
// math.MaxInt64.
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

// set changes the number at a position.
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

// next returns the first position, beginning with from, whose number is at most most. It
// returns -1 if there is none.
func (l *least) next(from int, most int64) int {
	if from >= l.leaves {
		return -1
	}
	at := l.leaves + from
	for l.tree[at] > most {
		for at&1 == 1 { // a right child has no sibling that follows it
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

// until yields, in ascending order, the positions whose number is at most now. It reads
// each number only when it reaches the position, so it sees changes that the caller makes
// in between.
func (l *least) until(now time.Duration) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := l.next(0, int64(now)); i >= 0 && yield(i); i = l.next(i+1, int64(now)) {
		}
	}
}

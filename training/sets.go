package training

import (
	"math/rand/v2"
	"slices"
)

// setDealer deals sets of models.
type setDealer struct {
	sets dealer[[]int] // no values if there are too many
	size int
	hand deck // of models, to make sets of
}

// newSetDealer deals all sets of n out of the first all models. Where there
// are too many of them to list, it still deals the models evenly.
func newSetDealer(all, n int) setDealer {
	if binomial(all, n) > maxSets {
		return setDealer{size: n, hand: deck{cards: all}}
	}
	return setDealer{sets: dealer[[]int]{values: combinations(all, n)}}
}

func (d *setDealer) deal(random *rand.Rand) []int {
	if len(d.sets.values) > 0 {
		return d.sets.deal(random)
	}
	var set, twice []int
	for len(set) < d.size {
		if model := d.hand.deal(random); slices.Contains(set, model) {
			twice = append(twice, model)
		} else {
			set = append(set, model)
		}
	}
	d.hand.left = append(d.hand.left, twice...)
	slices.Sort(set)
	return set
}

// combinations returns all sets of n out of the first all numbers.
func combinations(all, n int) [][]int {
	var sets [][]int
	set := make([]int, 0, n)
	var add func(first int)
	add = func(first int) {
		if len(set) == n {
			sets = append(sets, slices.Clone(set))
			return
		}
		for i := first; i <= all-(n-len(set)); i++ {
			set = append(set, i)
			add(i + 1)
			set = set[:len(set)-1]
		}
	}
	add(0)
	return sets
}

// binomial returns the number of sets of n out of all, or any number above
// maxSets if it is that.
func binomial(all, n int) int {
	sets := 1
	for i := range min(n, all-n) {
		sets = sets * (all - i) / (i + 1)
		if sets > maxSets {
			break
		}
	}
	return sets
}

package fit

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/training"
)

// fold is the positions of rows to fit with and to test with.
type fold struct {
	train, test []int
}

// split divides rows by Options.Split: into one fold, or several.
func split(rows []training.Row, o *Options, random *rand.Rand) ([]fold, error) {
	var folds []fold
	switch o.Split {
	case SplitFolds:
		folds = splitFolds(random.Perm(len(rows)), o.Folds)
	case SplitGrouped:
		folds = []fold{splitGrouped(rows, o.TestFraction, random)}
	default:
		order := random.Perm(len(rows))
		test := int(float64(len(rows)) * o.TestFraction)
		folds = []fold{{train: order[test:], test: order[:test]}}
	}
	for _, f := range folds {
		if len(f.train) < minTrainRows || len(f.test) < minTestRows {
			return nil, fmt.Errorf("%w: %d to fit with and %d to test with; at least %d and %d are needed: measure more groups",
				ErrRows, len(f.train), len(f.test), minTrainRows, minTestRows)
		}
		// The order of the rows in the dataset, so that only the choice and
		// not the order is random.
		slices.Sort(f.train)
		slices.Sort(f.test)
	}
	return folds, nil
}

func splitFolds(order []int, n int) []fold {
	folds := make([]fold, n)
	for i := range folds {
		from, to := i*len(order)/n, (i+1)*len(order)/n
		folds[i].test = slices.Clone(order[from:to])
		folds[i].train = slices.Concat(order[:from], order[to:])
	}
	return folds
}

// splitGrouped takes configurations in random order until enough of them are
// kept aside.
func splitGrouped(rows []training.Row, fraction float64, random *rand.Rand) fold {
	members := map[string][]int{}
	for i := range rows {
		key := configuration(rows[i])
		members[key] = append(members[key], i)
	}
	keys := make([]string, 0, len(members))
	for i := range rows {
		if key := configuration(rows[i]); members[key][0] == i {
			keys = append(keys, key)
		}
	}
	random.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	var f fold
	test := int(float64(len(keys)) * fraction)
	for i, key := range keys {
		if i < test {
			f.test = append(f.test, members[key]...)
		} else {
			f.train = append(f.train, members[key]...)
		}
	}
	return f
}

// configuration names the models of a group with their batch sizes and
// sequence lengths.
func configuration(r training.Row) string {
	var key []byte
	for _, s := range r.Group.Spans {
		key = binary.AppendUvarint(key, uint64(s.Service))
		key = binary.AppendUvarint(key, uint64(s.Size))
		key = binary.AppendUvarint(key, uint64(s.SeqLen))
	}
	return string(key)
}

// modelSet names the models of a group.
func modelSet(r training.Row) string {
	var key []byte
	for _, s := range r.Group.Spans {
		key = binary.AppendUvarint(key, uint64(s.Service))
	}
	return string(key)
}

// at returns the rows at the positions.
func at(rows []training.Row, positions []int) []training.Row {
	picked := make([]training.Row, len(positions))
	for i, p := range positions {
		picked[i] = rows[p]
	}
	return picked
}

// The fewest rows that make a fit, and a test of it, worth anything.
const (
	minTrainRows = 64
	minTestRows  = 16
)

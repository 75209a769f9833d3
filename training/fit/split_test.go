package fit

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/overlapd/overlapd/training"
)

func folds(t *testing.T, rows []training.Row, o Options) []fold {
	t.Helper()
	all, err := split(rows, &o, rand.New(rand.NewPCG(o.Seed, 0)))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestSplitsAreDisjointAndReproducible(t *testing.T) {
	rows := synthetic(500, 1).Rows
	for _, s := range []string{SplitRandom, SplitGrouped, SplitFolds} {
		o := DefaultOptions()
		o.Split = s
		all := folds(t, rows, o)
		for _, f := range all {
			together := slices.Sorted(slices.Values(slices.Concat(f.train, f.test)))
			for i, row := range together {
				if row != i {
					t.Fatalf("%s: row %d stands at %d of all %d", s, row, i, len(together))
				}
			}
			if len(together) != len(rows) {
				t.Errorf("%s: %d rows of %d", s, len(together), len(rows))
			}
		}
		if !reflect.DeepEqual(all, folds(t, rows, o)) {
			t.Errorf("%s: the same seed splits in another way", s)
		}
		o.Seed++
		if reflect.DeepEqual(all, folds(t, rows, o)) {
			t.Errorf("%s: another seed splits in the same way", s)
		}
	}
}

func TestGroupedSplitKeepsConfigurationsApart(t *testing.T) {
	rows := synthetic(800, 1).Rows
	o := DefaultOptions()
	o.Split = SplitGrouped
	f := folds(t, rows, o)[0]
	trained := map[string]bool{}
	for _, i := range f.train {
		trained[configuration(rows[i])] = true
	}
	for _, i := range f.test {
		if trained[configuration(rows[i])] {
			t.Fatalf("row %d is tested, and its configuration was fitted with", i)
		}
	}
}

func TestSplitRefusesFewRows(t *testing.T) {
	o := DefaultOptions()
	if _, err := split(synthetic(training.LeastRows, 1).Rows, &o, rand.New(rand.NewPCG(1, 0))); err != nil {
		t.Errorf("%d rows are enough, says training: %v", training.LeastRows, err)
	}
	for _, n := range []int{0, 1, minTestRows, minTrainRows + minTestRows - 1} {
		if _, err := split(synthetic(n, 1).Rows, &o, rand.New(rand.NewPCG(1, 0))); !errors.Is(err, errRows) {
			t.Errorf("%d rows: %v", n, err)
		}
	}
}

package reproduce

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/sim"
)

// variant is a policy as it is put into a figure.
type variant struct {
	name     string
	policy   string // name in package overlap
	maxBatch int    // 1 for no merging
	recipe   string // how its predictor is fitted
	knows    string
	summary  string
}

// mergedBatch is the largest batch that is merged: the largest that was
// measured.
const mergedBatch = 32

// Recipes of the predictors.
const (
	recipeOurs  = "overlapd"
	recipePaper = "paper"
)

// The variants, in the order of the figures.
var variants = []variant{
	{"fcfs", "fcfs", 1, recipeOurs, sim.KnowsNothing, "first come, first served; a query is dropped only once it is late, as the authors' server does (section 7.1)"},
	{"sjf", "sjf", 1, recipeOurs, sim.KnowsOrder, "shortest job first, by predicted latency; a query is dropped only once it is late. The authors explain by the time that predictions take why theirs is worst (section 7.2); here they take none"},
	{"edf", "edf", 1, recipeOurs, sim.KnowsNothing, "earliest deadline first; a query is dropped only once it is late"},
	{"fcfs-dropping", "fcfs", 1, recipeOurs, sim.KnowsAll, "first come, first served, as the daemon does it: what cannot be in time is dropped"},
	{"sjf-dropping", "sjf", 1, recipeOurs, sim.KnowsAll, "shortest job first, as the daemon does it: what cannot be in time is dropped"},
	{"edf-dropping", "edf", 1, recipeOurs, sim.KnowsAll, "earliest deadline first, as the daemon does it: what cannot be in time is dropped"},
	{"clockwork", "clockwork", 1, recipeOurs, sim.KnowsAll, "earliest deadline first; work that might be late is never started"},
	{"abacus", "abacus", 1, recipePaper, sim.KnowsAll, "the paper's algorithm, with a predictor of the paper's recipe"},
	{"overlap-unmerged", "overlap", 1, recipeOurs, sim.KnowsAll, "ours, each query a batch of its own"},
	{"overlap", "overlap", mergedBatch, recipeOurs, sim.KnowsAll, "ours, queries of one service merged up to the largest measured batch"},
}

// sequentials are the variants that the paper compares Abacus with.
var sequentials = []string{"fcfs", "sjf", "edf"}

// knowing are the other variants that run one model at a time.
var knowing = []string{"fcfs-dropping", "sjf-dropping", "edf-dropping", "clockwork"}

// VariantNames lists what Options.Policies may name.
func VariantNames() []string {
	names := make([]string, len(variants))
	for i, v := range variants {
		names[i] = v.name
	}
	return names
}

func variantNamed(name string) *variant {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
	if i < 0 {
		return nil
	}
	return &variants[i]
}

// chosen returns the named variants in the order of the figures, all of them
// if none is named.
func chosen(names []string) ([]variant, error) {
	for _, n := range names {
		if variantNamed(n) == nil {
			return nil, fmt.Errorf("%w: unknown policy %q; there are %s", errOptions, n, strings.Join(VariantNames(), ", "))
		}
	}
	var list []variant
	for _, v := range variants {
		if len(names) == 0 || slices.Contains(names, v.name) {
			list = append(list, v)
		}
	}
	return list, nil
}

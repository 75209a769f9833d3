package reproduce

import (
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/training/fit"
)

// TestVariants holds each to what its name says.
func TestVariants(t *testing.T) {
	var policies []string
	for _, p := range slices.Concat(overlap.Policies(), overlap.Comparisons()) {
		policies = append(policies, p.Name)
	}
	for _, v := range variants {
		if !slices.Contains(policies, v.policy) {
			t.Errorf("%s has no policy %s", v.name, v.policy)
		}
		if v.summary == "" || v.recipe != fit.RecipeOurs && v.recipe != fit.RecipePaper {
			t.Errorf("%+v", v)
		}
		plain, unmerged := strings.CutSuffix(v.name, "-unmerged")
		if other := variantNamed(plain); unmerged && (other.policy != v.policy || other.knows != v.knows || v.maxBatch != 1) {
			t.Errorf("%s differs from %+v by more than merging: %+v", v.name, other, v)
		}
		if named := slices.Contains(policies, v.name); named != (v.maxBatch == mergedBatch) || !named && v.maxBatch != 1 {
			t.Errorf("%s merges up to %d; the policy of that name merges as the daemon does", v.name, v.maxBatch)
		}
	}
}

// TestKindsOfVariants finds all in one of the lists, those with the authors' rule in
// that of the authors, and rivals that merge as ours does.
func TestKindsOfVariants(t *testing.T) {
	all := slices.Concat(sequentials, overlapping)
	for name, list := range rivals {
		all = append(all, list...)
		for _, rival := range list {
			if variantNamed(rival).maxBatch != variantNamed(name).maxBatch {
				t.Errorf("%s merges otherwise than its rival %s", name, rival)
			}
		}
	}
	slices.Sort(all)
	all = slices.Compact(all) // abacus is both
	names := VariantNames()
	slices.Sort(names)
	if !slices.Equal(all, names) {
		t.Errorf("the lists have %q, there are %q", all, names)
	}
	for _, name := range sequentials {
		if v := variantNamed(name); v.knows == sim.KnowsAll {
			t.Errorf("%s drops by prediction, which the authors' does not", name)
		}
	}
}

func variantNamed(name string) *variant {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
	return &variants[i]
}

package reproduce

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/training/fit"
)

// TestVariants holds each to what its name says.
func TestVariants(t *testing.T) {
	var policies []string
	for _, p := range overlap.Policies() {
		policies = append(policies, p.Name)
	}
	for _, v := range variants {
		if !slices.Contains(policies, v.policy) {
			t.Errorf("%s has no policy %s", v.name, v.policy)
		}
		if v.summary == "" || v.recipe != fit.RecipeOurs && v.recipe != fit.RecipePaper {
			t.Errorf("%+v", v)
		}
		if plain, ok := strings.CutSuffix(v.name, "-dropping"); ok {
			if other := variantNamed(plain); other.policy != v.policy || other.knows == sim.KnowsAll || v.knows != sim.KnowsAll {
				t.Errorf("%s differs from %+v by more than what it knows: %+v", v.name, other, v)
			}
		}
		if merges := v.name == "overlap"; merges != (v.maxBatch == mergedBatch) || !merges && v.maxBatch != 1 {
			t.Errorf("%s merges up to %d", v.name, v.maxBatch)
		}
	}
}

// TestKindsOfVariants finds all in one of the lists, and those with the authors'
// rule in that of the authors.
func TestKindsOfVariants(t *testing.T) {
	all := slices.Concat(sequentials, knowing, overlapping)
	slices.Sort(all)
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
	o := Options{Policies: []string{"fcfs", "lifo"}}
	if _, err := o.check(); !errors.Is(err, errOptions) || !strings.Contains(err.Error(), "sjf-dropping") {
		t.Errorf("an unknown one is refused with %v, which should tell what there is", err)
	}
}

func variantNamed(name string) *variant {
	i := slices.IndexFunc(variants, func(v variant) bool { return v.name == name })
	return &variants[i]
}

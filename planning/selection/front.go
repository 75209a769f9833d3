package selection

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/internal/stats"
)

// Front returns the variants on the Pareto front of accuracy and latency, the fastest first
// (section 4.3.3). Every other variant is slower than one of them that is at least as accurate.
// Variants are compared by their fastest batch, which usually is a single query. Front does not
// change a latency, even where a larger batch is faster, because no batch is padded to a larger
// size.
func Front(variants []Variant) (front []Variant) {
	variants = slices.Clone(variants)
	slices.SortStableFunc(variants, func(a, b Variant) int {
		return cmp.Or(cmp.Compare(slices.Min(a.Latency), slices.Min(b.Latency)), cmp.Compare(b.Accuracy, a.Accuracy))
	})
	for _, v := range variants {
		if len(front) == 0 || v.Accuracy > front[len(front)-1].Accuracy {
			front = append(front, v)
		}
	}
	return front
}

// LeftOut returns a sentence for each variant that is not on the [Front], with the reason why it
// never runs.
func LeftOut(variants []Variant) (why []string) {
	front := Front(variants)
	for _, v := range variants {
		named := func(of Variant) bool { return of.Name == v.Name }
		better := func(of Variant) bool { return of.Latency[0] <= v.Latency[0] && of.Accuracy >= v.Accuracy }
		if at := slices.IndexFunc(front, better); at >= 0 && !slices.ContainsFunc(front, named) {
			why = append(why, fmt.Sprintf("%s never runs: %s takes %s ms instead of %s for one query, with an accuracy of %v instead of %v",
				v.Name, front[at].Name, stats.Digits(4, front[at].Latency[0]), stats.Digits(4, v.Latency[0]), front[at].Accuracy, v.Accuracy))
		}
	}
	return why
}

// Resize returns a set of n variants made from a front. A smaller set has the first and the last
// variant of the front, and equally spaced ones between them. A larger set has the whole front, and
// variants whose accuracy and latency are interpolated between neighbours, where the accuracies are
// furthest apart (RAMSIS, section 7.3.2).
func Resize(front []Variant, n int) (set []Variant) {
	if n <= 1 {
		return front[:max(n, 0)]
	}
	if n <= len(front) {
		for i := range n {
			set = append(set, front[i*(len(front)-1)/(n-1)])
		}
		return set
	}
	// between counts the variants to insert after each one.
	between := make([]int, len(front)-1)
	for range n - len(front) {
		widest, at := -1.0, 0
		for i, k := range between {
			if gap := (front[i+1].Accuracy - front[i].Accuracy) / float64(k+1); gap > widest {
				widest, at = gap, i
			}
		}
		if len(between) > 0 {
			between[at]++
		}
	}
	for i, v := range front {
		set = append(set, v)
		if i == len(between) {
			break
		}
		for k := 1; k <= between[i]; k++ {
			set = append(set, interpolate(v, front[i+1], float64(k)/float64(between[i]+1)))
		}
	}
	return set
}

// interpolate returns the variant at a part of the way from a to b.
func interpolate(a, b Variant, part float64) Variant {
	v := Variant{Name: fmt.Sprintf("%s+%.0f%%", a.Name, 100*part), Accuracy: a.Accuracy + part*(b.Accuracy-a.Accuracy)}
	for i := range min(len(a.Latency), len(b.Latency)) {
		v.Latency = append(v.Latency, a.Latency[i]+part*(b.Latency[i]-a.Latency[i]))
	}
	return v
}

package selection

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/stats"
)

// Front returns the variants on the front of accuracy and latency, the fastest first (section
// 4.3.3): each other one is slower than one that is as accurate. Its fastest batch counts,
// which as a rule is that of a single query. What a batch takes stays as it was measured,
// also where a larger one is faster: nobody pads it to that.
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

// LeftOut says of each variant that is not on the [Front] why it never runs.
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

// Resize returns a set of n variants from a front. A smaller one has its first and last
// variants, and those between them at equal distances. A larger one has all of it, and
// variants between neighbours whose accuracy and latency are interpolated, wherever the
// accuracies are furthest apart (RAMSIS, section 7.3.2).
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
	between := make([]int, len(front)-1) // variants that are put behind each one
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

func interpolate(a, b Variant, part float64) Variant {
	v := Variant{Name: fmt.Sprintf("%s+%.0f%%", a.Name, 100*part), Accuracy: a.Accuracy + part*(b.Accuracy-a.Accuracy)}
	for i := range min(len(a.Latency), len(b.Latency)) {
		v.Latency = append(v.Latency, a.Latency[i]+part*(b.Latency[i]-a.Latency[i]))
	}
	return v
}

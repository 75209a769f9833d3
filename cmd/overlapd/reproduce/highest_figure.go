package reproduce

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/overlapd/overlapd/stats"
)

// The search for the highest load.
const (
	mostViolations = 0.01
	leastQPS       = 5.0
	mostQPS        = 640.0
	bisections     = 8 // leave an error of 2 %
	highestSeeds   = 2 // runs at each load
)

// planHighest plans the table of the highest loads that each policy bears.
func planHighest(r *reproduction) func() []*figure {
	o, s := r.options, r.pairs()
	var rows []*row
	deploys := s.pairs(calmLoad)
	for i := range deploys {
		for _, v := range r.variants {
			found := &row{Case: deploys[i].label(), Policy: v.name}
			rows = append(rows, found)
			r.plan.add("highest load", secondsOf(bisections*highestSeeds*o.Queries), func(ctx context.Context, l *lane) error {
				t := trial{stock: s, deploy: &deploys[i], variant: v, queries: o.Queries}
				qps, err := highest(func(qps float64) (float64, error) { return l.meanViolations(ctx, t, qps, o.Seed) })
				found.Ours = rounded(qps)
				return err
			})
		}
	}
	return func() []*figure {
		f := &figure{Figure: "highest-load", Title: "highest load with at most 1 % violations", Unit: "queries per second", decimals: 1, more: true,
			Notes: []string{fmt.Sprintf("By bisection, %d runs of %d queries at each load, all policies with the same queries, and the targets of the runs at 50 queries per second. The mean is geometric. The paper has no such figure.", highestSeeds, o.Queries)}}
		for _, found := range rows {
			f.Rows = append(f.Rows, *found)
		}
		f.addMeans(caseMean, geometricMean)
		others := []string{"abacus", "fcfs", "fcfs-dropping", "clockwork"}
		f.compare(caseMean, 0, overlapping, others, statement{})
		f.Notes = append(f.Notes, ratios(f, others))
		return []*figure{f}
	}
}

// meanViolations serves a trial at a load with one seed after the other.
func (l *lane) meanViolations(ctx context.Context, t trial, qps float64, seed uint64) (float64, error) {
	t.arrivals = poisson(qps)
	sum := 0.0
	for k := range uint64(highestSeeds) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t.seed = seed + k
		r, err := l.run(&t)
		if err != nil {
			return 0, err
		}
		sum += r.Violations
	}
	return sum / highestSeeds, nil
}

// highest returns the highest load that violates at most the part that is
// allowed, taking violations to grow with the load.
func highest(violations func(qps float64) (float64, error)) (float64, error) {
	low, high := leastQPS, mostQPS
	for range bisections {
		middle := math.Sqrt(low * high)
		v, err := violations(middle)
		if err != nil {
			return 0, err
		}
		if v <= mostViolations {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

// ratios describes how many times the load of others ours bears.
func ratios(f *figure, others []string) string {
	var parts []string
	for _, policy := range overlapping[1:] {
		a := f.find(caseMean, 0, policy)
		for _, other := range others {
			if b := f.find(caseMean, 0, other); a != nil && b != nil {
				parts = append(parts, fmt.Sprintf("%s %.2f times %s", policy, *a.Ours / *b.Ours, other))
			}
		}
	}
	if len(parts) == 0 {
		return "Ours was not compared with another policy."
	}
	return "Load borne: " + strings.Join(parts, ", ") + "."
}

func geometricMean(values []float64) float64 {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(v)
	}
	return math.Exp(stats.Mean(logs))
}

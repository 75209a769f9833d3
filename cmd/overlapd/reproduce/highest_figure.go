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
func planHighest(p *plan, o *Options, s *stock, list []variant) func() *figure {
	type cell struct {
		pair, variant string
		qps           float64
	}
	var cells []*cell
	deploys := pairs(calmLoad, s.measuredTogether())
	for i := range deploys {
		d := &deploys[i]
		for _, v := range list {
			c := &cell{pair: d.label(), variant: v.name}
			cells = append(cells, c)
			p.add("highest load", v.seconds(bisections*highestSeeds*o.Queries), func(ctx context.Context, l *lane) (err error) {
				t := trial{stock: s, deploy: d, variant: v, queries: o.Queries}
				c.qps, err = highest(func(qps float64) (float64, error) { return l.meanViolations(ctx, t, qps, o.Seed) })
				return err
			})
		}
	}
	return func() *figure {
		f := &figure{Figure: "highest-load", Title: "highest load with at most 1 % violations", Unit: "queries per second", decimals: 1, more: true,
			Notes: []string{fmt.Sprintf("By bisection, %d runs of %d queries at each load, all policies with the same queries, and the targets of the runs at 50 queries per second. The mean is geometric. The paper has no such figure.", highestSeeds, o.Queries)}}
		for _, c := range cells {
			f.Rows = append(f.Rows, row{Case: c.pair, Policy: c.variant, Ours: rounded(c.qps)})
		}
		addGeometricMeans(f)
		others := []string{"abacus", "fcfs", "fcfs-dropping", "clockwork"}
		f.compare(caseMean, 0, overlapping, others, statement{})
		f.Notes = append(f.Notes, ratios(f, others))
		return f
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

func addGeometricMeans(f *figure) {
	cases := f.cases(0)
	for _, policy := range f.policies() {
		var logs []float64
		for _, c := range cases {
			if r := f.find(c, 0, policy); r != nil && r.Ours != nil {
				logs = append(logs, math.Log(*r.Ours))
			}
		}
		if len(logs) > 0 {
			f.Rows = append(f.Rows, row{Case: caseMean, Policy: policy, Ours: rounded(math.Exp(stats.Mean(logs)))})
		}
	}
}

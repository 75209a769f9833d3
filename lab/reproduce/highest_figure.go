package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
)

// The search for the highest load: the violations allowed, and the range of loads.
const (
	mostViolations = 0.01
	leastQPS       = 5.0
	mostQPS        = 640.0

	// With 8 bisections the error is 2 %.
	bisections = 8

	// Runs at each load. The mean over the pairs needs fewer than a single quadruplet.
	highestSeeds     = 2
	highestManySeeds = 6
)

// contest is a search for the highest loads of deployments under each policy.
type contest struct {
	// stock is what the deployments run on.
	stock *stock

	// shown is the case that the ratios are computed for.
	shown string

	// mean is the name of the mean over all other cases.
	mean string

	// seeds is the number of runs at each load.
	seeds uint64

	// rows holds a row for each deployment and policy.
	rows []*row
}

// planHighest plans the table of the highest load that each policy sustains, for pairs and for more
// services, at each clock. A first figure has the ratios of overlap to the other policies.
func planHighest(r *reproduction) func() []*figure {
	var contests []*contest
	// Each clock has a contest of the pairs, and one of more services if their groups were
	// measured.
	for clock := range max(len(r.data.groups), 1) {
		pairs := &contest{stock: r.stock(pairsStock, clock), shown: caseMean, mean: caseMean, seeds: highestSeeds}
		r.search(pairs, pairs.stock.pairs(calmLoad), r.contenders())
		contests = append(contests, pairs)
		if r.quad() != nil {
			many := &contest{stock: r.stock(quadStock, clock), shown: caseQuadruplet, mean: caseTriplets, seeds: highestManySeeds}
			r.search(many, beyondPairs(calmLoad, many.stock.sizes()), r.contenders())
			contests = append(contests, many)
		}
	}
	return func() []*figure {
		borne := &figure{Figure: "headline", Title: "load that overlap sustains, over that of another policy", Unit: "times", decimals: 2, more: true, level: 1,
			Notes: []string{"Of the highest loads below. What overlapping adds to merging is what overlap bears over edf, sjf and clockwork, which merge as it does. Large batches took longer while groups were measured (" + profilingClock + ") than on the authors' server (" + servingClock + "), and no data says which of the two a server under full load has."}}
		list := []*figure{borne}
		for _, c := range contests {
			f := c.draw(len(list) == 1)
			list = append(list, f)
			borne.Rows = append(borne.Rows, c.ratios(f)...)
		}
		return list
	}
}

// search plans the search of a contest.
func (r *reproduction) search(c *contest, deploys []deployment, variants []variant) {
	o := r.options
	for i := range deploys {
		for _, v := range variants {
			// The search fills in the row.
			found := &row{Case: deploys[i].label(), Policy: v.name}
			if len(deploys[i].models) == len(quadModels) {
				found.Case = caseQuadruplet
			}
			c.rows = append(c.rows, found)
			r.plan.add("highest load", secondsOf(bisections*int(c.seeds)*o.Queries/2), func(ctx context.Context, l *lane) error {
				t := trial{stock: c.stock, deploy: &deploys[i], variant: v, queries: o.Queries}
				qps, err := highest(func(qps float64) (float64, error) { return l.meanViolations(ctx, t, qps, o.Seed, c.seeds) })
				found.Ours = rounded(qps)
				return err
			})
		}
	}
}

// draw returns the figure of a contest. Only the first has the plain name.
func (c *contest) draw(first bool) *figure {
	f := &figure{Figure: "highest-load", Title: "highest load with at most 1 % violations, " + c.stock.name, Unit: "queries per second", decimals: 1, more: true,
		Notes: []string{fmt.Sprintf("By bisection, %d runs at each load, all policies with the same queries, and the targets of the runs at 50 queries per second. The mean is geometric. The paper has no such figure.", c.seeds)}}
	if !first {
		f.Figure += ", " + c.stock.name
	}
	for _, found := range c.rows {
		f.Rows = append(f.Rows, *found)
	}
	f.addMeans(c.mean, geometricMean)
	return f
}

// ratios returns the loads that our variants sustain over those of other policies, from the figure
// of a contest.
func (c *contest) ratios(of *figure) (rows []row) {
	for _, policy := range own {
		a := of.find(c.shown, 0, policy)
		for _, other := range append([]string{"abacus-authors"}, rivals[policy]...) {
			if b := of.find(c.shown, 0, other); a != nil && b != nil {
				rows = append(rows, row{Case: c.stock.name, Policy: policy + " over " + other, Ours: rounded(*a.Ours / *b.Ours)})
			}
		}
	}
	return rows
}

// meanViolations runs a trial at a load with one seed after another and returns the mean
// violations. It stops as soon as no further run could bring the mean below the limit.
func (l *lane) meanViolations(ctx context.Context, t trial, qps float64, seed, seeds uint64) (float64, error) {
	t.arrivals = t.arriving(qps)
	var list []*sim.Result
	sum := 0.0
	for k := uint64(0); k < seeds && sum <= mostViolations*float64(seeds); k++ {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		t.seed = seed + k
		r, err := l.run(&t)
		if err != nil {
			return 0, err
		}
		list = append(list, r)
		sum = t.bad(list)
	}
	return sum / float64(seeds), nil
}

// highest returns the highest load with at most the allowed violations, by bisection. It assumes
// that violations grow with the load.
func highest(violations func(qps float64) (float64, error)) (float64, error) {
	low, high := leastQPS, mostQPS
	for range bisections {
		// The error of the search is relative, so it bisects on the logarithm.
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

// geometricMean returns the geometric mean of values.
func geometricMean(values []float64) float64 {
	logs := make([]float64, len(values))
	for i, v := range values {
		logs[i] = math.Log(v)
	}
	return math.Exp(stats.Mean(logs))
}

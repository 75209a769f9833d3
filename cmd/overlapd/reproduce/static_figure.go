package reproduce

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/training/fit"
)

// The shares of the first of two models that are tried, in percent of the device; the
// second has the rest.
const (
	leastShare = 5
	shareStep  = 5
)

// splitVariant is a static split. It is in no other figure, since its shares are to be
// found for each deployment.
var splitVariant = variant{"static", "static", mergedBatch, fit.RecipeOurs, sim.KnowsAll, ""}

// besideSplit are what a static split stands beside.
var besideSplit = []string{"edf", "overlap"}

// sweep calls for all shares, the middle first, until one fails.
func sweep(try func(first int) error) error {
	for at := 0; leastShare+at <= 50; at += shareStep {
		for _, first := range slices.Compact([]int{50 - at, 50 + at}) {
			if err := try(first); err != nil {
				return err
			}
		}
	}
	return nil
}

// bestHighest finds the highest load that any share bears. A share that does not bear what
// another does is not looked at further.
func (l *lane) bestHighest(ctx context.Context, t trial, seed uint64) (best float64, first int, err error) {
	err = sweep(func(share int) error {
		t.shares = []int{share, 100 - share}
		bears := func(qps float64) (float64, error) { return l.meanViolations(ctx, t, qps, seed, highestSeeds) }
		if first > 0 {
			if v, err := bears(best * splitMore); err != nil || v > mostViolations {
				return err
			}
		}
		qps, err := highest(bears)
		if first == 0 || qps > best {
			best, first = qps, share
		}
		return err
	})
	return best, first, err
}

// splitMore is by how much another share must bear more to be looked at, which is within
// the error of the search.
const splitMore = 1.01

// bestShare finds the share with the fewest violations at the load of a deployment, in the
// first runs.
func (l *lane) bestShare(ctx context.Context, t trial, seed uint64) (first int, err error) {
	least := 0.0
	err = sweep(func(share int) error {
		sum := 0.0
		t.shares = []int{share, 100 - share}
		for k := range uint64(highestSeeds) {
			t.seed = seed + k
			r, err := l.run(&t)
			if err != nil || ctx.Err() != nil {
				return err
			}
			sum += r.Violations
		}
		if first == 0 || sum < least {
			least, first = sum, share
		}
		return nil
	})
	return first, err
}

// planStatic plans the tables of the best static split of the device beside edf and ours:
// what each bears, and violations at the loads of the authors.
func planStatic(r *reproduction) func() []*figure {
	var drawn []func() []*figure
	for clock := range max(len(r.data.groups), 1) {
		drawn = append(drawn, splitLoads(r, clock), splitViolations(r, clock))
	}
	return func() (list []*figure) {
		for _, draw := range drawn {
			list = append(list, draw()...)
		}
		return list
	}
}

// splitNote says what a static split is here.
const splitNote = "static: each service has a share of the multiprocessors to itself, in which it runs beside the others, merging and dropping as under edf. Shares were not measured. An operator is taken to last as on the whole device, or as long as its work takes in the share, whichever is longer, and neighbours to cost nothing. Shares are the best of all steps of 5 %, by the queries that are counted."

func splitLoads(r *reproduction, clock int) func() []*figure {
	s, o := r.stock(pairsStock, clock), r.options
	deploys := s.pairs(calmLoad)
	rows, shares := make([]row, len(deploys)), make([]int, len(deploys))
	others := &contest{stock: s, shown: caseMean, mean: caseMean, seeds: highestSeeds}
	r.search(others, deploys, among(variants, besideSplit...))
	for i := range deploys {
		t := trial{stock: s, deploy: &deploys[i], variant: splitVariant, queries: o.Queries}
		r.plan.add("static split, highest load", secondsOf(bisections*highestSeeds*o.Queries), func(ctx context.Context, l *lane) error {
			qps, first, err := l.bestHighest(ctx, t, o.Seed)
			rows[i], shares[i] = row{Case: deploys[i].label(), Policy: splitVariant.name, Ours: rounded(qps)}, first
			return err
		})
	}
	return func() []*figure {
		f := others.draw(false)
		f.Rows = slices.DeleteFunc(f.Rows, func(r row) bool { return isMean(r.Case) })
		f.Figure, f.Rows = clockName("static", s, clock), append(f.Rows, rows...)
		f.Title += ", beside the best static split"
		f.addMeans(caseMean, geometricMean)
		var wins []string
		for _, c := range deploys {
			split, ours := f.find(c.label(), 0, splitVariant.name), f.find(c.label(), 0, "overlap")
			if split != nil && ours != nil && *split.Ours > *ours.Ours {
				wins = append(wins, c.label())
			}
		}
		f.Notes = append(f.Notes, splitNote, splitShares(deploys, shares),
			fmt.Sprintf("The static split bears more than overlap in %d of %d pairs. %s", len(wins), len(deploys), strings.Join(wins, ", ")))
		return []*figure{f}
	}
}

// clockName is the name of a figure at the first clock, and with it at another.
func clockName(name string, s *stock, clock int) string {
	if clock > 0 {
		name += ", " + s.name
	}
	return name
}

// splitShares says which shares the first models have.
func splitShares(deploys []deployment, shares []int) string {
	var list []string
	for i := range deploys {
		list = append(list, fmt.Sprintf("%s %d", deploys[i].label(), shares[i]))
	}
	return "Shares of the first model, percent: " + strings.Join(list, ", ") + "."
}

func splitViolations(r *reproduction, clock int) func() []*figure {
	s, o := r.stock(pairsStock, clock), r.options
	deploys := s.pairs(loads...)
	list := r.serve("static split, violations", o.Seeds, among(variants, besideSplit...), trial{stock: s}, deploys)
	shares := make([]int, len(deploys))
	for i := range deploys {
		run := &served{&deploys[i], splitVariant.name, make([]*sim.Result, o.Seeds)}
		list = append(list, run)
		t := trial{stock: s, deploy: run.deploy, variant: splitVariant, arrivals: poisson(run.deploy.load), queries: o.Queries}
		r.plan.add("static split, violations", secondsOf(o.Queries*(o.Seeds+highestSeeds*100/shareStep)), func(ctx context.Context, l *lane) (err error) {
			if shares[i], err = l.bestShare(ctx, t, o.Seed); err != nil {
				return err
			}
			t.shares = []int{shares[i], 100 - shares[i]}
			for k := range run.results {
				t.seed = o.Seed + uint64(k)
				if run.results[k], err = l.run(&t); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return func() []*figure {
		f := (&series{figure: pairViolations.figure, ours: violations}).draw(list, nil, caseMean)
		f.Figure, f.Title = clockName("static violations", s, clock), f.Title+", beside the best static split, "+s.name
		f.Notes = []string{splitNote, splitShares(deploys, shares)}
		return []*figure{f}
	}
}

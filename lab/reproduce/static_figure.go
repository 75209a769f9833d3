package reproduce

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/training/fit"
)

// The shares of the first of two models that are tried, in percent of the device. The second model
// has the rest.
const (
	leastShare = 5
	shareStep  = 5
)

// splitVariant is a static split. Figures with fixed variants exclude it, because its shares must
// be found for each deployment.
var splitVariant = variant{"static", "static", mergedBatch, fit.RecipeOurs, sim.KnowsAll, ""}

// sharesVariant is overlap on a device of shareUnits parts, where a batch may have some of them to
// itself.
var sharesVariant = variant{"overlap-shares", "overlap", mergedBatch, fit.RecipeOurs, sim.KnowsAll, ""}

// shareUnits is how many parts that device has.
const shareUnits = 3

// besideSplit are the policies that a static split is compared with.
var besideSplit = []string{"edf", "overlap"}

// sweep calls try for all shares, the middle first, until one fails.
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

// bestHighest returns the highest load that any share sustains, and that share. It skips a share
// that does not sustain more than the best one so far.
func (l *lane) bestHighest(ctx context.Context, t trial, seed uint64) (best float64, first int, err error) {
	err = sweep(func(share int) error {
		t.shares = []int{share, 100 - share}
		bears := func(qps float64) (float64, error) { return l.meanViolations(ctx, t, qps, seed, highestSeeds) }
		// One run at a slightly higher load rules out most shares.
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

// splitMore is the factor by which another share must sustain more. It is within the error of the
// search.
const splitMore = 1.01

// bestShare returns the share with the fewest violations at the load of a deployment, by the first
// runs.
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

// planStatic plans the tables of the best static split of the device, compared with edf and
// overlap: the load that each sustains, and violations at the authors' loads.
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

// splitNote describes the static split of these figures.
const splitNote = "static: each service has a share of the multiprocessors to itself, in which it runs beside the others, merging and dropping as under edf. Shares were not measured. An operator is taken to last as on the whole device, or as long as its work takes in the share, whichever is longer, and neighbours to cost nothing. Shares are the best of all steps of 5 %, by the queries that are counted."

// sharesNote describes overlap with shares.
const sharesNote = "overlap-shares: overlap, on a device in three equal parts, where a batch may also have one or two of them to itself, in which it lasts as in a share of the static split. Which batches do is decided for each round, by the same objective; nothing is set for a pair."

// splitLoads plans the table of loads at a clock.
func splitLoads(r *reproduction, clock int) func() []*figure {
	s, o := r.stock(pairsStock, clock), r.options
	deploys := s.pairs(calmLoad)
	rows, shares := make([]row, len(deploys)), make([]int, len(deploys))
	sharing := make([]row, len(deploys))
	// The other policies have the same search, so their loads are comparable.
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
	for i := range deploys {
		t := trial{stock: s, deploy: &deploys[i], variant: sharesVariant, queries: o.Queries, circumstances: circumstances{units: shareUnits}}
		r.plan.add("shares, highest load", secondsOf(bisections*highestSeeds*o.Queries/2), func(ctx context.Context, l *lane) error {
			qps, err := highest(func(qps float64) (float64, error) { return l.meanViolations(ctx, t, qps, o.Seed, highestSeeds) })
			sharing[i] = row{Case: deploys[i].label(), Policy: sharesVariant.name, Ours: rounded(qps)}
			return err
		})
	}
	return func() []*figure {
		f := others.draw(false)
		// Remove the means, which are computed again with the rows of the split.
		f.Rows = slices.DeleteFunc(f.Rows, func(r row) bool { return isMean(r.Case) })
		f.Figure, f.Rows = clockName("static", s, clock), append(append(f.Rows, rows...), sharing...)
		f.Title += ", with the best static split"
		f.addMeans(caseMean, geometricMean)
		var wins []string
		for _, c := range deploys {
			split, ours := f.find(c.label(), 0, splitVariant.name), f.find(c.label(), 0, "overlap")
			if split != nil && ours != nil && *split.Ours > *ours.Ours {
				wins = append(wins, c.label())
			}
		}
		f.Notes = append(f.Notes, splitNote, sharesNote, splitShares(deploys, shares),
			fmt.Sprintf("The static split bears more than overlap in %d of %d pairs. %s", len(wins), len(deploys), strings.Join(wins, ", ")))
		return []*figure{f}
	}
}

// clockName returns the name of a figure, which includes the clock unless it is the first.
func clockName(name string, s *stock, clock int) string {
	if clock > 0 {
		name += ", " + s.name
	}
	return name
}

// splitShares returns a sentence with the shares of the first models.
func splitShares(deploys []deployment, shares []int) string {
	var list []string
	for i := range deploys {
		list = append(list, fmt.Sprintf("%s %d", deploys[i].label(), shares[i]))
	}
	return "Shares of the first model, percent: " + strings.Join(list, ", ") + "."
}

// splitViolations plans the table of violations at a clock.
func splitViolations(r *reproduction, clock int) func() []*figure {
	s, o := r.stock(pairsStock, clock), r.options
	deploys := s.pairs(loads...)
	// The other policies run with all seeds. The split first searches for its shares and then does
	// the same.
	list := r.serve("static split, violations", o.Seeds, among(variants, besideSplit...), trial{stock: s}, deploys)
	divided := trial{stock: s, circumstances: circumstances{units: shareUnits}}
	list = append(list, r.serve("shares, violations", o.Seeds, []variant{sharesVariant}, divided, deploys)...)
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
		f.Figure, f.Title = clockName("static violations", s, clock), f.Title+", with the best static split, "+s.name
		f.Notes = []string{splitNote, sharesNote, splitShares(deploys, shares)}
		return []*figure{f}
	}
}

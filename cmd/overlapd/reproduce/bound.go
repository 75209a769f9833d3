package reproduce

import (
	"context"

	"github.com/overlapd/overlapd/sim/bound"
	"github.com/overlapd/overlapd/stats"
)

// boundSeeds is how many runs of a pair are bounded at most: it takes longer
// than serving them.
const boundSeeds = 1

// The series of what no schedule does better than.
const (
	boundUnmerged = "bound, unmerged"
	boundMerged   = "bound, merged"
)

// bounds are the fewest violations that any schedule of a pair could have, by
// runKey: one value for each seed.
type bounds map[string][]float64

// planBounds plans them for the pairs of the authors.
func planBounds(p *plan, o *Options, s *stock) bounds {
	all := bounds{}
	for _, load := range loads {
		deploys := pairs(load, s.measuredTogether())
		for i := range deploys {
			d := &deploys[i]
			for _, series := range []string{boundUnmerged, boundMerged} {
				list := make([]float64, min(o.Seeds, boundSeeds))
				all[runKey(d.label(), load, series)] = list
				v := variant{policy: "overlap", maxBatch: 1, recipe: recipeOurs}
				if series == boundMerged {
					v.maxBatch = mergedBatch
				}
				for k := range list {
					p.add("offline bounds", boundWork, func(_ context.Context, l *lane) error {
						on, err := l.device(s)
						if err != nil {
							return err
						}
						t := trial{stock: s, deploy: d, variant: v, arrivals: poisson(float64(load)), queries: min(o.Queries, bound.MaxQueries), seed: o.Seed + uint64(k)}
						b, err := bound.Of(t.scenario(on))
						if err != nil {
							return err
						}
						list[k] = b.Violations
						return nil
					})
				}
			}
		}
	}
	return all
}

// boundWork is about what a bound takes, in seconds.
const boundWork = 0.7

// addBounds adds the bounds, and the means over the pairs, to a figure of
// violations.
func (f *Figure) addBounds(all bounds, r *pairRuns) {
	if len(all) == 0 {
		return
	}
	f.Notes = append(f.Notes, "The bounds are of sim/bound: no schedule does better, not even one that knows all queries beforehand, though none may do as well. They are of the first seed.")
	means := map[string]map[int][]float64{boundUnmerged: {}, boundMerged: {}}
	for _, load := range loads {
		for i := range r.deploys[load] {
			pair := r.deploys[load][i].label()
			for _, series := range []string{boundUnmerged, boundMerged} {
				if list, ok := all[runKey(pair, load, series)]; ok {
					f.Rows = append(f.Rows, Row{Case: pair, QPS: float64(load), Policy: series, Ours: meanOf(list), Spread: rounded(stats.Deviation(list))})
					means[series][load] = append(means[series][load], stats.Mean(list))
				}
			}
		}
		for _, series := range []string{boundUnmerged, boundMerged} {
			f.Rows = append(f.Rows, Row{Case: caseMean, QPS: float64(load), Policy: series, Ours: meanOf(means[series][load])})
		}
	}
}

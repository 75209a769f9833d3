package reproduce

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/sim/bound"
	"github.com/overlapd/overlapd/stats"
)

// pairRuns are the runs of the authors' pairs.
type pairRuns struct {
	options  *Options
	variants []variant
	deploys  map[int][]deployment // by load
	samples  map[string]*sample
	authors  map[int]authorsResults
	bounds   bounds // may be none
}

// loads of the authors' runs.
var loads = []int{calmLoad, fullLoad}

func runKey(pair string, load int, policy string) string {
	return fmt.Sprintf("%s %d %s", pair, load, policy)
}

// measuredTogether returns a function that reports whether groups of all its
// models were measured.
func (s *stock) measuredTogether() func([]string) bool {
	known := map[string]bool{}
	for i := range s.measured.Rows {
		var names []string
		for _, span := range s.measured.Rows[i].Group.Spans {
			names = append(names, s.measured.Models[span.Service].Name)
		}
		known[key(names)] = true
	}
	return func(models []string) bool { return known[key(models)] }
}

func planPairs(p *plan, o *Options, s *stock, list []variant, authors map[int]authorsResults) *pairRuns {
	r := &pairRuns{options: o, variants: list, deploys: map[int][]deployment{}, samples: map[string]*sample{}, authors: authors}
	for _, load := range loads {
		r.deploys[load] = pairs(load, s.measuredTogether())
		for i := range r.deploys[load] {
			d := &r.deploys[load][i]
			for _, v := range list {
				r.samples[runKey(d.label(), load, v.name)] = o.sampled(p, "figures 14, 15 and 17",
					trial{stock: s, deploy: d, variant: v, arrivals: poisson(float64(load)), queries: o.Queries})
			}
		}
	}
	return r
}

// figure makes a figure of one value of the runs.
func (r *pairRuns) figure(f *figure, value func(*sim.Result) float64, theirs func(measured) float64) *figure {
	for _, load := range loads {
		for i := range r.deploys[load] {
			pair := r.deploys[load][i].label()
			for _, v := range r.variants {
				row := row{Case: pair, QPS: float64(load), Policy: v.name}
				row.Ours, row.Spread = r.samples[runKey(pair, load, v.name)].of(value)
				if m, ok := r.authors[load][pair][v.name]; ok {
					row.Authors = rounded(theirs(m))
				}
				f.Rows = append(f.Rows, row)
			}
		}
	}
	f.addMeans()
	return f
}

// overlapping are the variants that run several models at a time.
var overlapping = []string{"abacus", "overlap-unmerged", "overlap"}

func (r *pairRuns) figures(o *Options) []*figure {
	var list []*figure
	if o.wants("14") {
		f := r.figure(&figure{Figure: "14", Title: "99th percentile of latency over the QoS target", Unit: "p99 / target", decimals: 2, level: 1,
			Notes: []string{"Of answered queries, late ones too; dropped ones are not among them, so that a policy that drops much looks good here and bad in figure 15. The paper's figure is at 50 queries per second."}},
			tail, func(m measured) float64 { return m.tail })
		f.compare(calmLoad, overlapping, sequentials, false, paperTails)
		list = append(list, f)
	}
	if o.wants("15") {
		f := r.figure(&figure{Figure: "15", Title: "queries that violate their target, drops counted", Unit: "violations", decimals: 4, percent: true,
			Notes: []string{"Both services of a pair have one target, so the earliest deadline is that of who came first: edf does what fcfs does here. The authors' runs of the two differ."}},
			violations, func(m measured) float64 { return m.violations })
		f.addBounds(r.bounds, r)
		f.compare(calmLoad, overlapping, sequentials, false, paperCalmViolations)
		f.compare(fullLoad, overlapping, sequentials, false, paperFullViolations)
		f.compare(fullLoad, overlapping[1:], []string{"abacus"}, false, statement{})
		f.Notes = append(f.Notes, r.worse())
		list = append(list, f)
	}
	if o.wants("17") {
		f := r.figure(&figure{Figure: "17", Title: "queries answered of 1,000, late ones too", Unit: "answered of 1,000", decimals: 0,
			Notes: []string{"As the authors count throughput. The paper's figure is at 100 queries per second."}},
			answeredOf1000, func(m measured) float64 { return m.answered })
		f.compare(fullLoad, overlapping, sequentials, true, paperThroughputs)
		inTime := r.figure(&figure{Figure: "17, goodput", Title: "queries answered in time of 1,000", Unit: "in time of 1,000", decimals: 0,
			Notes: []string{"What clients gain: late answers do not count. The paper has no such figure; the authors' numbers follow from their violations."}},
			inTimeOf1000, func(m measured) float64 { return authorsQueries * (1 - m.violations) })
		inTime.compare(fullLoad, overlapping, sequentials, true, statement{})
		list = append(list, f, inTime)
	}
	return list
}

// worse names the pairs in which ours violates more than the best sequential
// policy does.
func (r *pairRuns) worse() string {
	var found []string
	any := false
	for _, load := range loads {
		for i := range r.deploys[load] {
			pair := r.deploys[load][i].label()
			of := func(policy string) *float64 {
				if s := r.samples[runKey(pair, load, policy)]; s != nil {
					mid, _ := s.of(violations)
					return mid
				}
				return nil
			}
			best, name := (*float64)(nil), ""
			for _, policy := range slices.Concat(sequentials, knowing) {
				if v := of(policy); v != nil && (best == nil || *v < *best) {
					best, name = v, policy
				}
			}
			for _, policy := range overlapping[1:] {
				v := of(policy)
				if v == nil || best == nil {
					continue
				}
				any = true
				if *v > *best {
					found = append(found, fmt.Sprintf("%s at %d under %s: %.2f %%, %s %.2f %%", pair, load, policy, 100**v, name, 100**best))
				}
			}
		}
	}
	switch {
	case !any:
		return "Ours was not compared with a sequential policy."
	case len(found) == 0:
		return "No pair is worse under overlap, merged or not, than under the best sequential policy."
	}
	return "Worse under overlap than under the best sequential policy: " + strings.Join(found, "; ") + "."
}

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
func (f *figure) addBounds(all bounds, r *pairRuns) {
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
					f.Rows = append(f.Rows, row{Case: pair, QPS: float64(load), Policy: series, Ours: meanOf(list), Spread: rounded(stats.Deviation(list))})
					means[series][load] = append(means[series][load], stats.Mean(list))
				}
			}
		}
		for _, series := range []string{boundUnmerged, boundMerged} {
			f.Rows = append(f.Rows, row{Case: caseMean, QPS: float64(load), Policy: series, Ours: meanOf(means[series][load])})
		}
	}
}

// smallSeeds is how many runs figure 16 has of each pair at most: with one size
// of query they hardly differ.
const smallSeeds = 3

// planSmall plans figure 16: only the least inputs, and targets of two times
// what they take alone.
func planSmall(p *plan, o *Options, s *stock, list []variant) func() *figure {
	few := *o
	few.Seeds = min(o.Seeds, smallSeeds)
	r := &pairRuns{options: o, variants: list, deploys: map[int][]deployment{calmLoad: pairs(calmLoad, s.measuredTogether())}, samples: map[string]*sample{}}
	for i := range r.deploys[calmLoad] {
		d := &r.deploys[calmLoad][i]
		d.sizes, d.seqLens = [][]int{pairSizes[:1], pairSizes[:1]}, pairSeqLens[:1]
		for _, v := range list {
			r.samples[runKey(d.label(), calmLoad, v.name)] = few.sampled(p, "figure 16",
				trial{stock: s, deploy: d, twiceSolo: true, variant: v, arrivals: poisson(calmLoad), queries: o.Queries})
		}
	}
	return func() *figure {
		return r.figure(&figure{Figure: "16", Title: "small inputs: 99th percentile of latency over the target", Unit: "p99 / target", decimals: 2, level: 1,
			Notes: []string{"Every query has batch size 4 and sequence length 8; each service's target is two times what that takes alone on the emulated device (section 7.2). The paper shows Abacus only and gives no numbers; it says that targets of about 10 ms are kept."}},
			tail, nil)
	}
}

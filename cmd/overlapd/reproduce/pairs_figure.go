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

// runs are those of deployments at several loads.
type runs struct {
	variants []variant
	deploys  map[int][]deployment // by load
	samples  map[string]*sample   // by runKey
	authors  map[int]authorsResults
	bounds   bounds // may be none
}

// loads of the authors' runs.
var loads = []int{calmLoad, fullLoad}

func runKey(deployment string, load int, policy string) string {
	return fmt.Sprintf("%s %d %s", deployment, load, policy)
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

// planRuns adds runs of every deployment under every variant, with what all of
// them have in common.
func planRuns(p *plan, stage string, o *Options, common trial, list []variant, deploys map[int][]deployment) *runs {
	r := &runs{variants: list, deploys: deploys, samples: map[string]*sample{}}
	for _, load := range loads {
		for i := range deploys[load] {
			for _, v := range list {
				t := common
				t.deploy, t.variant, t.arrivals, t.queries = &deploys[load][i], v, poisson(float64(load)), o.Queries
				r.samples[runKey(t.deploy.label(), load, v.name)] = o.sampled(p, stage, t)
			}
		}
	}
	return r
}

func planPairs(p *plan, o *Options, s *stock, list []variant, authors map[int]authorsResults) *runs {
	deploys := map[int][]deployment{}
	for _, load := range loads {
		deploys[load] = pairs(load, s.measuredTogether())
	}
	r := planRuns(p, "figures 14, 15 and 17", o, trial{stock: s}, list, deploys)
	r.authors = authors
	return r
}

// runsFigure is a figure of one value of runs.
type runsFigure struct {
	wanted string // the name by which options ask for it
	figure
	ours     func(*sim.Result) float64
	authors  func(measured) float64 // nil without numbers of the authors
	compared []comparison
}

// comparison is of policies with others, at one load. The paper's statement
// may be empty.
type comparison struct {
	name           string
	qps            float64
	whose, against []string
	says           statement
}

// draw makes the figures that are wanted. Each gets the means that summarise its
// rows before it is compared.
func (r *runs) draw(o *Options, list []runsFigure, summarise func(*figure)) (drawn []*figure) {
	for i := range list {
		k := &list[i]
		if !o.wants(k.wanted) {
			continue
		}
		f := k.figure
		f.Rows = r.rows(k)
		summarise(&f)
		for _, c := range k.compared {
			f.compare(c.name, c.qps, c.whose, c.against, c.says)
		}
		drawn = append(drawn, &f)
	}
	return drawn
}

func (r *runs) rows(k *runsFigure) (rows []row) {
	for _, load := range loads {
		for i := range r.deploys[load] {
			d := &r.deploys[load][i]
			for _, v := range r.variants {
				row := row{Case: d.caseName(), QPS: float64(load), Policy: v.name}
				row.Ours, row.Spread = r.samples[runKey(d.label(), load, v.name)].of(k.ours)
				if m, ok := r.authors[load][d.label()][v.name]; ok {
					row.Authors = rounded(k.authors(m))
				}
				rows = append(rows, row)
			}
		}
	}
	return rows
}

// overlapping are the variants that run several models at a time.
var overlapping = []string{"abacus", "overlap-unmerged", "overlap"}

var pairFigures = []runsFigure{{
	wanted: "14",
	figure: figure{Figure: "14", Title: "99th percentile of latency over the QoS target", Unit: "p99 / target", decimals: 2, level: 1,
		Notes: []string{"Of answered queries, late ones too; dropped ones are not among them, so that a policy that drops much looks good here and bad in figure 15. The paper's figure is at 50 queries per second."}},
	ours: tail, authors: func(m measured) float64 { return m.tail },
	compared: []comparison{{caseMean, calmLoad, overlapping, sequentials, paperTails}},
}, {
	wanted: "15",
	figure: figure{Figure: "15", Title: "queries that violate their target, drops counted", Unit: "violations", decimals: 4, percent: true,
		Notes: []string{"Both services of a pair have one target, so the earliest deadline is that of who came first: edf does what fcfs does here. The authors' runs of the two differ."}},
	ours: violations, authors: func(m measured) float64 { return m.violations },
	compared: []comparison{
		{caseMean, calmLoad, overlapping, sequentials, paperCalmViolations},
		{caseMean, fullLoad, overlapping, sequentials, paperFullViolations},
		{caseMean, fullLoad, overlapping[1:], []string{"abacus"}, statement{}},
	},
}, {
	wanted: "17",
	figure: figure{Figure: "17", Title: "queries answered of 1,000, late ones too", Unit: "answered of 1,000", more: true,
		Notes: []string{"As the authors count throughput. The paper's figure is at 100 queries per second."}},
	ours: answeredOf1000, authors: func(m measured) float64 { return m.answered },
	compared: []comparison{{caseMean, fullLoad, overlapping, sequentials, paperThroughputs}},
}, {
	wanted: "17",
	figure: figure{Figure: "17, goodput", Title: "queries answered in time of 1,000", Unit: "in time of 1,000", more: true,
		Notes: []string{"What clients gain: late answers do not count. The paper has no such figure; the authors' numbers follow from their violations."}},
	ours: inTimeOf1000, authors: func(m measured) float64 { return authorsQueries * (1 - m.violations) },
	compared: []comparison{{caseMean, fullLoad, overlapping, sequentials, statement{}}},
}}

// pairFigures are figures 14, 15 and 17.
func (r *runs) pairFigures(o *Options) []*figure {
	list := r.draw(o, pairFigures, (*figure).addMeans)
	for _, f := range list {
		if f.Figure == "15" {
			r.addBounds(f)
			f.Notes = append(f.Notes, r.worse())
		}
	}
	return list
}

// worse names the pairs in which ours violates more than the best sequential
// policy does.
func (r *runs) worse() string {
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
func (r *runs) addBounds(f *figure) {
	if len(r.bounds) == 0 {
		return
	}
	f.Notes = append(f.Notes, "The bounds are of sim/bound: no schedule does better, not even one that knows all queries beforehand, though none may do as well. They are of the first seed.")
	means := map[string]map[int][]float64{boundUnmerged: {}, boundMerged: {}}
	for _, load := range loads {
		for i := range r.deploys[load] {
			pair := r.deploys[load][i].label()
			for _, series := range []string{boundUnmerged, boundMerged} {
				if list, ok := r.bounds[runKey(pair, load, series)]; ok {
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

var smallFigures = []runsFigure{{
	wanted: "16",
	figure: figure{Figure: "16", Title: "small inputs: 99th percentile of latency over the target", Unit: "p99 / target", decimals: 2, level: 1,
		Notes: []string{"Every query has batch size 4 and sequence length 8; each service's target is two times what that takes alone on the emulated device (section 7.2). The paper shows Abacus only and gives no numbers; it says that targets of about 10 ms are kept."}},
	ours: tail,
}}

// planSmall plans figure 16: only the least inputs, and targets of two times
// what they take alone.
func planSmall(p *plan, o *Options, s *stock, list []variant) func() []*figure {
	few := *o
	few.Seeds = min(o.Seeds, smallSeeds)
	deploys := pairs(calmLoad, s.measuredTogether())
	for i := range deploys {
		deploys[i].sizes, deploys[i].seqLens = [][]int{pairSizes[:1], pairSizes[:1]}, pairSeqLens[:1]
	}
	r := planRuns(p, "figure 16", &few, trial{stock: s, twiceSolo: true}, list, map[int][]deployment{calmLoad: deploys})
	return func() []*figure { return r.draw(o, smallFigures, (*figure).addMeans) }
}

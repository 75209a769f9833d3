package reproduce

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/lab/sim/bound"
	"github.com/overlapd/overlapd/training/fit"
)

// series is a figure of one value of runs, with the authors' value if they published it.
type series struct {
	// figure has the title and the format, without rows.
	figure

	// ours returns the value of a run of ours.
	ours func(*sim.Result) float64

	// authors returns the value of an authors' result, and is nil if they published none.
	authors func(measured) float64

	// compared lists the comparisons of the figure.
	compared []comparison
}

// comparison compares policies with others at one load. The paper's statement may be empty.
type comparison struct {
	// name is the case of the figure, whose and against are policies.
	name string

	// qps is the load at which they are compared.
	qps            float64
	whose, against []string

	// says is the paper's statement on the comparison.
	says statement
}

// draw fills the figure with the runs, adds the means under a name, and compares policies.
func (s *series) draw(list []*served, authors map[float64]authorsResults, mean string) *figure {
	f := s.figure
	f.Notes = slices.Clone(f.Notes)
	for _, k := range list {
		// The authors' number is that of the same load, co-location and policy, if they published
		// one.
		row := row{Case: k.deploy.label(), QPS: k.deploy.load, Policy: k.variant}
		if len(k.deploy.models) == len(quadModels) {
			row.Case = caseQuadruplet
		}
		row.Ours, row.Spread = k.of(s.ours)
		if m, ok := authors[row.QPS][row.Case][row.Policy]; ok && s.authors != nil {
			row.Authors = rounded(s.authors(m))
		}
		f.Rows = append(f.Rows, row)
	}
	f.addMeans(mean, stats.Mean)
	for _, c := range s.compared {
		f.compare(c.name, c.qps, c.whose, c.against, c.says)
	}
	return &f
}

// overlapping are the variants that run several models at a time.
var overlapping = []string{"abacus-authors", "overlap-unmerged", "abacus", "overlap"}

// The figures of the authors' pairs (Abacus, sections 7.2 and 7.3), with the paper's statements.
var (
	pairTails = series{
		figure: figure{Figure: "14", Title: "99th percentile of latency over the QoS target", Unit: "p99 / target", decimals: 2, level: 1,
			Notes: []string{"Of answered queries, late ones included and dropped ones excluded, so that a policy that drops much looks good here and bad in figure 15. The paper's figure is at 50 queries per second."}},
		ours: tail, authors: func(m measured) float64 { return m.tail },
		compared: []comparison{{caseMean, calmLoad, overlapping, sequentials, statement{"7.2", map[string]float64{"fcfs-authors": 23.1, "sjf-authors": 34.1, "edf-authors": 23.8}}}},
	}
	pairViolations = series{
		figure: figure{Figure: "15", Title: "queries that violate their target, drops counted", Unit: "violations", decimals: 4, percent: true,
			Notes: []string{"Both services of a pair have one target, so the earliest deadline is that of who came first: edf does what fcfs does here. The authors' runs of the two differ."}},
		ours: violations, authors: func(m measured) float64 { return m.violations },
		compared: []comparison{
			{caseMean, calmLoad, overlapping, sequentials, statement{"7.2", map[string]float64{"fcfs-authors": 38.8, "sjf-authors": 71.0, "edf-authors": 44.0}}},
			{caseMean, fullLoad, overlapping, sequentials, statement{"7.3", map[string]float64{"fcfs-authors": 55.7, "sjf-authors": 63.2, "edf-authors": 54.3}}},
			{caseMean, fullLoad, own, []string{"abacus-authors"}, statement{}},
			{caseMean, fullLoad, own[:1], rivals[own[0]], statement{}},
			{caseMean, fullLoad, own[1:], rivals[own[1]], statement{}},
		},
	}
	pairAnswered = series{
		figure: figure{Figure: "17", Title: "queries answered of 1,000, late ones too", Unit: "answered of 1,000", more: true,
			Notes: []string{"This is the authors' measure of throughput. The paper's figure is at 100 queries per second."}},
		ours: answeredOf1000, authors: func(m measured) float64 { return m.answered },
		compared: []comparison{{caseMean, fullLoad, overlapping, sequentials, statement{"7.3", map[string]float64{"fcfs-authors": 25.7, "sjf-authors": 38.1, "edf-authors": 25.7}}}},
	}
)

// servePairs plans the runs of figures 14, 15 and 17, once.
func servePairs(r *reproduction) []*served {
	if r.pairRuns == nil {
		s := r.pairs()
		r.pairRuns = r.serve("figures 14, 15 and 17", r.options.Seeds, r.variants, trial{stock: s}, s.pairs(loads...))
	}
	return r.pairRuns
}

// planPairs plans figures of the authors' pairs.
func planPairs(list ...*series) planner {
	return func(r *reproduction) func() []*figure {
		pairs := servePairs(r)
		return func() (drawn []*figure) {
			for _, s := range list {
				drawn = append(drawn, s.draw(pairs, r.data.authors, caseMean))
			}
			return drawn
		}
	}
}

// planViolations plans figure 15: violations with their lower bounds, and violations at the other
// clock if there is one.
func planViolations(r *reproduction) func() []*figure {
	// The figure at the first clock also has the bounds.
	draw, bounds := planPairs(&pairViolations)(r), planBounds(r)
	var other []*served
	if s := r.stock(pairsStock, 1); s != nil {
		other = r.serve("figure 15, "+profilingClock, r.options.Seeds, r.variants, trial{stock: s}, s.pairs(fullLoad))
	}
	return func() []*figure {
		list := draw()
		list[0].addBounds(bounds)
		if other != nil {
			f := pairViolations.draw(other, r.data.authors, caseMean)
			f.Figure, f.Title = f.Figure+", "+profilingClock, f.Title+", groups as measured"
			list = append(list, f)
		}
		for _, f := range list {
			f.Notes = append(f.Notes, f.worse())
		}
		return list
	}
}

// worse returns a sentence that lists the pairs in which overlap violates more targets than the
// best of its rivals.
func (f *figure) worse() string {
	var found []string
	compared := false
	for _, load := range loads {
		for _, pair := range f.cases(load) {
			for _, policy := range own {
				// Compare with the best rival of this pair and load.
				r, best := f.find(pair, load, policy), f.least(pair, load, rivals[policy])
				if isMean(pair) || r == nil || best == nil {
					continue
				}
				compared = true
				if *r.Ours > *best.Ours {
					found = append(found, fmt.Sprintf("%s at %g under %s: %.2f %%, %s %.2f %%", pair, load, policy, 100**r.Ours, best.Policy, 100**best.Ours))
				}
			}
		}
	}
	switch {
	case !compared:
		return "Ours was not compared with a sequential policy."
	case len(found) == 0:
		return "No pair is worse under overlap, merged or not, than under the best sequential policy that merges as it does."
	}
	return "Worse under overlap than under the best sequential policy that merges as it does: " + strings.Join(found, "; ") + "."
}

// least returns the row with the least value under some policies, or nil.
func (f *figure) least(name string, qps float64, policies []string) (best *row) {
	for _, policy := range policies {
		if r := f.find(name, qps, policy); r != nil && (best == nil || *r.Ours < *best.Ours) {
			best = r
		}
	}
	return best
}

// The series of lower bounds.
const (
	boundUnmerged = "bound, unmerged"
	boundMerged   = "bound, merged"
)

// boundWork is the rough duration of computing a bound, in seconds.
const boundWork = 0.75

// planBounds plans lower bounds of the violations of each pair under any schedule. A bound takes
// longer than a run, so only the first seed has one.
func planBounds(r *reproduction) (list []*served) {
	s := r.pairs()
	deploys := s.pairs(loads...)
	for i := range deploys {
		for _, v := range []variant{
			{name: boundUnmerged, policy: "overlap", maxBatch: 1, recipe: fit.RecipeOurs},
			{name: boundMerged, policy: "overlap", maxBatch: mergedBatch, recipe: fit.RecipeOurs},
		} {
			d, result := &deploys[i], new(sim.Result)
			list = append(list, &served{d, v.name, []*sim.Result{result}})
			r.plan.add("offline bounds", boundWork, func(_ context.Context, l *lane) error {
				on, err := l.device(s)
				if err != nil {
					return err
				}
				t := trial{stock: s, deploy: d, variant: v, arrivals: poisson(d.load), queries: min(r.options.Queries, bound.MaxQueries), seed: r.options.Seed}
				// A bound is stored like a run that has only violations.
				b, err := bound.Of(t.scenario(on))
				if err == nil {
					result.Violations = b.Violations
				}
				return err
			})
		}
	}
	return list
}

// addBounds adds bounds, and their means over the pairs, to a figure of violations.
func (f *figure) addBounds(bounds []*served) {
	if len(bounds) == 0 {
		return
	}
	f.Notes = append(f.Notes, "The bounds are of lab/sim/bound: no schedule does better, not even one that knows all queries beforehand, though none may do as well. They are of the first seed.")
	for _, load := range loads {
		// Means are computed over the bounds alone, and then added to the figure.
		of := figure{}
		for _, b := range bounds {
			if b.deploy.load == load {
				row := row{Case: b.deploy.label(), QPS: load, Policy: b.variant}
				row.Ours, row.Spread = b.of(violations)
				of.Rows = append(of.Rows, row)
			}
		}
		of.addMeans(caseMean, stats.Mean)
		f.Rows = append(f.Rows, of.Rows...)
	}
}

package reproduce

import (
	"context"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/training/fit"
)

// Variants that only the figures of gains compare with overlap: EDF with load shedding, and overlap
// that does not cut models.
var (
	sheddingVariant = variant{"edf-shedding", "edf-shedding", mergedBatch, fit.RecipeOurs, sim.KnowsAll, ""}
	wholeVariant    = variant{"overlap-whole", "overlap-whole", mergedBatch, fit.RecipeOurs, sim.KnowsAll, ""}
)

// The best of several policies, chosen for each deployment and group of seeds after the runs.
const (
	bestOther   = "the better of edf and static"
	bestWithout = "the best of edf, edf-shedding and static"
)

// bestOf lists the policies of each choice.
var bestOf = map[string][]string{bestOther: {"edf", "static"}, bestWithout: {"edf", "edf-shedding", "static"}}

// question is a comparison of overlap with other policies under certain circumstances.
type question struct {
	// name is the case in the figure, without the clock.
	name string

	// kind and clock select the stock.
	kind  string
	clock int

	// others are the policies that overlap is compared with.
	others []string
	circumstances
}

// Arrivals and targets that differ from the authors'.
const (
	burstyVariation = 2
	tightTargets    = 2
)

// gainQuestions are those of the figures of gains. The first ones of a clock also appear pair by
// pair.
var gainQuestions = []question{
	{name: "21 pairs", kind: pairsStock, others: []string{"edf", "edf-shedding", "static", "abacus", "overlap-whole"}},
	{name: "four services", kind: quadStock, others: []string{"edf", "edf-shedding", "abacus", "overlap-whole"}},
	{name: "21 pairs, 1 % of each service", kind: pairsStock, others: []string{"edf"}, circumstances: circumstances{each: true}},
	{name: "21 pairs, gamma arrivals with a coefficient of variation of 2", kind: pairsStock, others: []string{"edf", "edf-shedding"}, circumstances: circumstances{variation: burstyVariation}},
	{name: "21 pairs, targets of twice the largest query alone", kind: pairsStock, others: []string{"edf", "edf-shedding", "overlap-whole"}, circumstances: circumstances{targets: tightTargets}},
	{name: "21 pairs", kind: pairsStock, clock: 1, others: []string{"edf", "edf-shedding", "static", "abacus", "overlap-whole"}},
	{name: "four services", kind: quadStock, clock: 1, others: []string{"edf", "edf-shedding", "abacus", "overlap-whole"}},
}

// asked is a question with its answers.
type asked struct {
	// question is what was asked.
	*question

	// stock and deploys are what it was asked of.
	stock   *stock
	deploys []deployment

	// found holds the highest loads by policy, deployment and group of seeds.
	found map[string][][]float64
}

// ask plans the searches that answer a question.
func ask(r *reproduction, q *question, s *stock, deploys []deployment, queries int, seeds uint64) *asked {
	a := &asked{question: q, stock: s, deploys: deploys, found: map[string][][]float64{}}
	for _, v := range among(slices.Concat(variants, []variant{sheddingVariant, splitVariant, wholeVariant}), append(slices.Clone(q.others), "overlap")...) {
		// Each group of seeds has a search of its own, so that the spread of the gains is known.
		found := make([][]float64, len(deploys))
		a.found[v.name] = found
		for i := range deploys {
			found[i] = make([]float64, max(r.options.Seeds/highestSeeds, 1))
			for k := range found[i] {
				t := trial{stock: s, deploy: &deploys[i], variant: v, queries: queries, circumstances: q.circumstances}
				seed := r.options.Seed + uint64(k)*seeds
				r.plan.add(q.name, secondsOf(bisections*int(seeds)*queries/2), func(ctx context.Context, l *lane) (err error) {
					// A static split is searched for its shares as well.
					if v.policy == splitVariant.policy {
						found[i][k], _, err = l.bestHighest(ctx, t, seed)
						return err
					}
					found[i][k], err = highest(func(qps float64) (float64, error) {
						return l.meanViolations(ctx, t, qps*float64(max(q.devices, 1)), seed, seeds)
					})
					return err
				})
			}
		}
	}
	return a
}

// gains returns the highest load of overlap over that of another policy in a deployment, by group
// of seeds.
func (a *asked) gains(other string, deploy int) []float64 {
	list := slices.Clone(a.found["overlap"][deploy])
	for k := range list {
		// The best of several policies is the one with the highest load of this search.
		most := 0.0
		for _, policy := range append(slices.Clone(bestOf[other]), other) {
			if found := a.found[policy]; found != nil {
				most = max(most, found[deploy][k])
			}
		}
		list[k] /= most
	}
	return list
}

// compared returns the policies that overlap is compared with.
func (a *asked) compared() []string {
	list := slices.Clone(a.others)
	// Choices among several policies only make sense where static was searched.
	if at := slices.Index(list, "static"); at >= 0 {
		list = slices.Insert(list, at+1, bestOther, bestWithout)
	}
	return list
}

// rows returns the gains over each other policy, as the geometric mean over the deployments that
// takes accepts.
func (a *asked) rows(name string, takes func(*deployment) bool) (rows []row) {
	for _, other := range a.compared() {
		// There is one geometric mean for each group of seeds.
		means := make([]float64, len(a.found["overlap"][0]))
		for k := range means {
			var list []float64
			for i := range a.deploys {
				if takes(&a.deploys[i]) {
					list = append(list, a.gains(other, i)[k])
				}
			}
			means[k] = geometricMean(list)
		}
		rows = append(rows, seedsRow(name, "over "+other, means, 0))
	}
	return rows
}

// withBert reports whether a deployment has the model bert.
func withBert(d *deployment) bool { return slices.Contains(d.models, sequenceModel) }

// planGain plans the figures of what overlap gains: over which policies, for which pairs, and under
// which circumstances.
func planGain(r *reproduction) func() []*figure {
	var all []*asked
	for i := range gainQuestions {
		q := &gainQuestions[i]
		if q.kind == quadStock && r.data.quad == nil {
			continue
		}
		// Questions without data are skipped.
		s := r.stock(q.kind, q.clock)
		if s == nil {
			continue
		}
		deploys, seeds := s.pairs(calmLoad), uint64(highestSeeds)
		if q.kind == quadStock {
			deploys, seeds = []deployment{*s.quadruplet()}, highestManySeeds
		}
		all = append(all, ask(r, q, s, deploys, r.options.Queries, seeds))
	}
	return func() []*figure {
		sum := &figure{Figure: "gain", Title: "load that overlap sustains over that of other policies, with at most 1 % violations", Unit: "times", decimals: 2, more: true, words: true, Notes: []string{
			fmt.Sprintf("Highest loads by bisection to 2 %%, with %d runs at each load (%d of four services). The number is the median over %d such searches, each with other seeds, beside the least and the most of them; of pairs, of the geometric mean over them.", highestSeeds, highestManySeeds, max(r.options.Seeds/highestSeeds, 1)),
			"edf-shedding is edf that postpones, by Moore's rule, the fewest queries for which there is too little time. " + splitNote,
			"overlap-whole is overlap that cuts no model.",
		}}
		list := []*figure{sum}
		for i, a := range all {
			name := func(of string) string { return of + ", " + r.data.clockOf(a.clock) }
			sum.Rows = append(sum.Rows, a.rows(name(a.name), func(*deployment) bool { return true })...)
			if !slices.Contains(a.others, "static") {
				continue
			}
			// Pairs with bert gain most, so they are also shown separately.
			if bert := slices.ContainsFunc(a.deploys, func(d deployment) bool { return withBert(&d) }); bert && len(a.deploys) > 1 {
				sum.Rows = append(sum.Rows, a.rows(name("the pairs with bert"), withBert)...)
				sum.Rows = append(sum.Rows, a.rows(name("the pairs without bert"), func(d *deployment) bool { return !withBert(d) })...)
			}
			list = append(list, all[i].byPair(name))
		}
		return slices.Insert(list, 1, inShort(sum))
	}
}

// inShort returns the summary of the gains for the README, as a figure without rows. Ranges are
// over all searches at both clocks.
func inShort(f *figure) *figure {
	of := func(pairs, other string) string {
		// The range is from the least to the largest of all searches at both clocks.
		var all []float64
		for _, clock := range []string{servingClock, profilingClock} {
			if r := f.find(pairs+", "+clock, 0, "over "+other); r != nil && r.Least != nil {
				all = append(all, *r.Least, *r.Most)
			}
		}
		if len(all) == 0 {
			return absent
		}
		least, most := slices.Min(all), slices.Max(all)
		return fmt.Sprintf("%s to %s", f.number(&least), f.number(&most))
	}
	const shedding, best = "edf-shedding", bestWithout
	return &figure{Figure: "gain in short", Title: "what the README says", table: true, Notes: []string{fmt.Sprintf(
		"On an emulated A100, fitted to the measurements of Abacus' authors, `overlap` sustains **%s times the load** of earliest deadline first (EDF) with batching and load shedding: geometric mean of 21 pairs of models, at most 1 %% of queries late or dropped, range over seeds and two clocks of the device. Over the best of EDF, EDF with load shedding and a static split, chosen for each pair afterwards, it is %s times.\n\n"+
			"  | | over EDF with batching and load shedding | over the best of the three, chosen afterwards |\n  |---|--:|--:|\n"+
			"  | pairs with bert, which leaves most of the device idle | %s | %s |\n  | pairs without bert | %s | %s |",
		of("21 pairs", shedding), of("21 pairs", best),
		of("the pairs with bert", shedding), of("the pairs with bert", best), of("the pairs without bert", shedding), of("the pairs without bert", best))}}
}

// clockOf returns the name of a clock.
func (d *data) clockOf(clock int) string {
	if clock >= len(d.groups) {
		return servingClock
	}
	return d.groups[clock].clock
}

// byPair returns the figure of the gains in each pair.
func (a *asked) byPair(name func(string) string) *figure {
	f := &figure{Figure: name("gain by pair"), Title: "the same, pair by pair", Unit: "times", decimals: 2, more: true, words: true}
	for i := range a.deploys {
		for _, other := range a.compared() {
			f.Rows = append(f.Rows, seedsRow(a.deploys[i].label(), "over "+other, a.gains(other, i), 0))
		}
	}
	return f
}

// The pool of devices that the services of all models share.
const (
	poolTargets = 2

	// poolQueries is the number of queries of a run, in multiples of the usual number.
	poolQueries = 4
)

// The sizes of the pool, and the policies compared on it.
var (
	poolSizes  = []int{2, 4, 8}
	poolOthers = []string{"edf", "edf-shedding", "abacus", "overlap-whole"}
)

// planPool plans the figures of pools of devices: the highest load of each policy, and the gain of
// overlap.
func planPool(r *reproduction) func() []*figure {
	var all []*asked
	for clock := range max(len(r.data.groups), 1) {
		s := r.stock(pairsStock, clock)
		// The pool serves all models that occur in the measured pairs.
		d := deployment{seqLens: pairSeqLens}
		for _, m := range shortNames {
			if slices.ContainsFunc(s.pairs(calmLoad), func(d deployment) bool { return slices.Contains(d.models, m.model) }) {
				d.models, d.sizes = append(d.models, m.model), append(d.sizes, pairSizes)
			}
		}
		for _, devices := range poolSizes {
			q := &question{name: fmt.Sprintf("%d devices, %s", devices, r.data.clockOf(clock)), kind: pairsStock, clock: clock, others: poolOthers, circumstances: circumstances{targets: poolTargets, devices: devices}}
			all = append(all, ask(r, q, s, []deployment{d}, poolQueries*r.options.Queries, 1))
		}
	}
	return func() []*figure {
		borne := &figure{Figure: "pool", Title: "the services of all models on a pool of devices: highest load with at most 1 % violations", Unit: "queries per second", decimals: 0, more: true, words: true, Notes: []string{
			fmt.Sprintf("Targets are %d times what the largest query of a service takes alone. The number is the median over %d searches, each with other seeds and %d queries at each load, beside the least and the most.", poolTargets, max(r.options.Seeds/highestSeeds, 1), poolQueries*r.options.Queries),
		}}
		gain := &figure{Figure: "pool, gain", Title: "load that overlap sustains on a pool, over that of other policies", Unit: "times", decimals: 2, more: true, words: true}
		for _, a := range all {
			for _, policy := range append(slices.Clone(a.others), "overlap") {
				// Searches are for the load of one device.
				loads := slices.Clone(a.found[policy][0])
				for k := range loads {
					loads[k] *= float64(a.devices)
				}
				borne.Rows = append(borne.Rows, seedsRow(a.name, policy, loads, 0))
			}
			gain.Rows = append(gain.Rows, a.rows(a.name, func(*deployment) bool { return true })...)
		}
		return []*figure{borne, gain}
	}
}

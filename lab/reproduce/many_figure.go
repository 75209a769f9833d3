package reproduce

import "fmt"

// The figures of three and of four services (Abacus, section 7.4), with the paper's statements.
var (
	manyTails = series{
		figure: figure{Figure: "18", Title: "three and four services: 99th percentile of latency over the target", Unit: "p99 / target", decimals: 2, level: 1},
		ours:   tail,
		compared: []comparison{
			{caseTriplets, calmLoad, overlapping, sequentials, statement{"7.4", map[string]float64{"fcfs-authors": 21.3, "sjf-authors": 35.3, "edf-authors": 20.8}}},
			{caseQuadruplet, calmLoad, overlapping, sequentials, statement{"7.4", map[string]float64{"fcfs-authors": 16.1, "sjf-authors": 34.3, "edf-authors": 21.1}}},
		},
	}
	manyViolations = series{
		figure: figure{Figure: "18, violations", Title: "three and four services: violations, drops counted", Unit: "violations", percent: true, decimals: 4},
		ours:   violations,
		compared: []comparison{
			{caseTriplets, calmLoad, overlapping, sequentials, statement{"7.4", map[string]float64{"fcfs-authors": 87.7, "sjf-authors": 93.4, "edf-authors": 85.3}}},
			{caseQuadruplet, calmLoad, overlapping, sequentials, statement{"7.4", map[string]float64{"fcfs-authors": 87.7, "sjf-authors": 93.4, "edf-authors": 85.3}}},
			{caseTriplets, fullLoad, own[1:], rivals[own[1]], statement{}},
			{caseQuadruplet, fullLoad, own[1:], rivals[own[1]], statement{}},
		},
	}
	manyAnswered = series{
		figure: figure{Figure: "19", Title: "three and four services: queries answered of 1,000", Unit: "answered of 1,000", more: true},
		ours:   answeredOf1000,
		compared: []comparison{
			{caseTriplets, fullLoad, overlapping, sequentials, statement{"7.4", map[string]float64{"fcfs-authors": 51.0, "sjf-authors": 72.3, "edf-authors": 57.0}}},
			{caseQuadruplet, fullLoad, overlapping, sequentials, statement{"7.4", map[string]float64{"fcfs-authors": 38.4, "sjf-authors": 53.9, "edf-authors": 63.4}}},
		},
	}
)

// planMany plans figures of three and four services. All of them share the same runs.
func planMany(list ...*series) planner {
	return func(r *reproduction) func() []*figure {
		s := r.quad()
		if s == nil {
			return nil
		}
		sizes := s.sizes()
		// The first of the figures plans the runs.
		if r.manyRuns == nil {
			var deploys []deployment
			for _, load := range loads {
				deploys = append(deploys, beyondPairs(load, sizes)...)
			}
			r.manyRuns = r.serve("figures 18 and 19", r.options.Seeds, r.variants, trial{stock: s}, deploys)
		}
		return func() (drawn []*figure) {
			for _, k := range list {
				f := k.draw(r.manyRuns, nil, caseTriplets)
				f.Notes = []string{fmt.Sprintf("%s The target of every service is %v, as in section 7.6, because the paper gives none here.", unusualSizes(sizes), manyTarget)}
				drawn = append(drawn, f)
			}
			return drawn
		}
	}
}

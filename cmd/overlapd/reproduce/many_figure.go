package reproduce

import "fmt"

var manyFigures = []runsFigure{{
	wanted:   "18",
	figure:   figure{Figure: "18", Title: "three and four services: 99th percentile of latency over the target", Unit: "p99 / target", decimals: 2, level: 1},
	ours:     tail,
	compared: comparedMany(calmLoad, paperManyTails),
}, {
	wanted:   "18",
	figure:   figure{Figure: "18, violations", Title: "three and four services: violations, drops counted", Unit: "violations", percent: true, decimals: 4},
	ours:     violations,
	compared: append(comparedMany(calmLoad, paperManyViolations), comparedMany(fullLoad, nil)...),
}, {
	wanted:   "19",
	figure:   figure{Figure: "19", Title: "three and four services: queries answered of 1,000", Unit: "answered of 1,000", more: true},
	ours:     answeredOf1000,
	compared: comparedMany(fullLoad, paperManyThroughputs),
}}

func comparedMany(load float64, says map[int]statement) (list []comparison) {
	for _, services := range []int{3, 4} {
		list = append(list, comparison{manyCase(services), load, overlapping, sequentials, says[services]})
	}
	return list
}

// planMany plans figures 18 and 19: three and four services.
func planMany(p *plan, o *Options, s *stock, list []variant) func() []*figure {
	sizes := sizesBeyondPairs(s.measured)
	deploys := beyondPairs(sizes)
	r := planRuns(p, "figures 18 and 19", o, trial{stock: s}, list, map[int][]deployment{calmLoad: deploys, fullLoad: deploys})
	note := fmt.Sprintf("%s The target of every service is %v, that of section 7.6, since the paper gives none.", unusualSizes(sizes), manyTarget)
	return func() []*figure {
		return r.draw(o, manyFigures, func(f *figure) {
			f.Notes = []string{note}
			r.addTriplets(f)
		})
	}
}

// addTriplets adds the mean over the triplets.
func (r *runs) addTriplets(f *figure) {
	for _, load := range loads {
		for _, v := range r.variants {
			var ours []float64
			for i := range r.deploys[load] {
				if d := &r.deploys[load][i]; len(d.models) == 3 {
					ours = present(ours, f.find(d.caseName(), float64(load), v.name).Ours)
				}
			}
			f.Rows = append(f.Rows, row{Case: manyCase(3), QPS: float64(load), Policy: v.name, Ours: meanOf(ours)})
		}
	}
}

package reproduce

import (
	"fmt"

	"github.com/overlapd/overlapd/sim"
)

// planMany plans figures 18 and 19: three and four services.
func planMany(p *plan, o *Options, s *stock, list []variant) func() []*figure {
	sizes := sizesBeyondPairs(s.measured)
	deploys := beyondPairs(sizes)
	samples := map[string]*sample{}
	for i := range deploys {
		d := &deploys[i]
		for _, load := range loads {
			for _, v := range list {
				samples[runKey(d.label(), load, v.name)] = o.sampled(p, "figures 18 and 19",
					trial{stock: s, deploy: d, variant: v, arrivals: poisson(float64(load)), queries: o.Queries})
			}
		}
	}
	note := fmt.Sprintf("%s The target of every service is %v, that of section 7.6, since the paper gives none.", unusualSizes(sizes), manyTarget)
	caseOf := func(d *deployment) string {
		if len(d.models) > 3 {
			return manyCase(len(d.models))
		}
		return d.label()
	}
	filled := func(number, title, unit string, percent bool, decimals int, value func(*sim.Result) float64) *figure {
		f := &figure{Figure: number, Title: title, Unit: unit, percent: percent, decimals: decimals, Notes: []string{note}}
		for _, load := range loads {
			for i := range deploys {
				for _, v := range list {
					row := row{Case: caseOf(&deploys[i]), QPS: float64(load), Policy: v.name}
					row.Ours, row.Spread = samples[runKey(deploys[i].label(), load, v.name)].of(value)
					f.Rows = append(f.Rows, row)
				}
			}
		}
		f.addTriplets(deploys, list)
		return f
	}
	return func() []*figure {
		var figures []*figure
		if o.wants("18") {
			f := filled("18", "three and four services: 99th percentile of latency over the target", "p99 / target", false, 2, tail)
			f.level = 1
			f.compareMany(calmLoad, false, paperManyTails)
			v := filled("18, violations", "three and four services: violations, drops counted", "violations", true, 4, violations)
			v.compareMany(calmLoad, false, paperManyViolations)
			v.compareMany(fullLoad, false, nil)
			figures = append(figures, f, v)
		}
		if o.wants("19") {
			f := filled("19", "three and four services: queries answered of 1,000", "answered of 1,000", false, 0, answeredOf1000)
			f.compareMany(fullLoad, true, paperManyThroughputs)
			figures = append(figures, f)
		}
		return figures
	}
}

// manyCase names the mean over deployments of so many services.
func manyCase(services int) string {
	if services == 3 {
		return "mean of triplets"
	}
	return "quadruplet"
}

// addTriplets adds the mean over the triplets.
func (f *figure) addTriplets(deploys []deployment, list []variant) {
	for _, load := range loads {
		for _, v := range list {
			var ours []float64
			for i := range deploys {
				if len(deploys[i].models) == 3 {
					ours = present(ours, f.find(deploys[i].label(), float64(load), v.name).Ours)
				}
			}
			f.Rows = append(f.Rows, row{Case: manyCase(3), QPS: float64(load), Policy: v.name, Ours: meanOf(ours)})
		}
	}
}

func (f *figure) compareMany(load float64, more bool, says map[int]statement) {
	for _, services := range []int{3, 4} {
		f.compareCase(manyCase(services), load, overlapping, sequentials, more, says[services])
	}
}

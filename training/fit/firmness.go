package fit

// firmness is how firmly costs are held to what is likely. Each number counts
// in rows: a prior of 1 weighs as much as a row that is off by all its
// latency.
type firmness struct {
	name       string
	smooth     float64 // operators side by side deviate about as much
	cells      float64 // so does an operator in cells side by side
	deviation  float64 // no operator deviates from what was measured of it, or from the others
	share      float64 // work of an operator is as for the whole cell
	levels     float64 // cells side by side cost about the same
	levelShare float64 // work is what the operators take alone
}

// firmnesses are those that few rows may choose between. The first is for many
// rows. Which of them few rows are best served by depends on how much they
// spread, and on whether operators were measured by themselves.
var firmnesses = []firmness{
	{"loose", 0.15, 0.1, 0, 0.001, 0.1, 0.001},
	{"light", 0.5, 0.3, 0, 0.003, 0.3, 0.003},
	{"firm", 0.5, 0.3, 1, 0.03, 3, 0.01},
	{"rigid", 0.5, 1, 10, 0.3, 30, 0.03},
}

// addPriors adds the slopes of the priors.
func (f *costFit) addPriors(byDeviation, byShare, byLevel, byLevelShare []float64) {
	for i := range f.deviation {
		byDeviation[i] += 2 * f.hold.deviation * f.deviation[i]
		byShare[i] += 2 * f.hold.share * f.share[i]
	}
	for cell := range f.levelShare {
		byLevelShare[cell] += 2 * f.hold.levelShare * f.levelShare[cell]
	}
	for i := range f.grids {
		g := &f.grids[i]
		g.eachCell(func(cell int, beside []int) {
			at := g.first + cell*g.operators
			for o := at + 1; o < at+g.operators; o++ {
				tie(f.deviation, byDeviation, o, o-1, f.hold.smooth)
				tie(f.share, byShare, o, o-1, f.hold.smooth)
			}
			for _, other := range beside {
				tie(f.level, byLevel, g.firstCell+cell, g.firstCell+other, f.hold.levels)
				tie(f.levelShare, byLevelShare, g.firstCell+cell, g.firstCell+other, f.hold.levels)
				for o := range g.operators {
					tie(f.deviation, byDeviation, at+o, g.first+other*g.operators+o, f.hold.cells)
					tie(f.share, byShare, at+o, g.first+other*g.operators+o, f.hold.cells)
				}
			}
		})
	}
}

// tie adds the slope of the squared difference of two values.
func tie(values, slope []float64, a, b int, prior float64) {
	d := 2 * prior * (values[a] - values[b])
	slope[a] += d
	slope[b] -= d
}

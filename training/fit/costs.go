package fit

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
)

// Constants of the inference of costs.
const (
	costSteps = 600
	costRate  = 0.05
	// maxCostRows limits the rows that are used. More do not improve the costs.
	maxCostRows = 100_000
	// costCorner is the relative error below which the loss is quadratic instead of linear.
	costCorner = 0.01
	// firstShare is the initial logarithm of work over isolated latency.
	firstShare  = -0.7
	leastMicros = 1e-3
	// mostMicros is the longest time that a predictor accepts.
	mostMicros = float64(predictor.MaxTime) / 1e3
	// longestShare limits the logarithm of work over isolated latency.
	longestShare = 3.0
)

// costFit infers the cost of each operator, and how much of it is work, from the latencies of
// groups. Its model of a group is [predictor.Together]: the group takes as long as its longest
// span or as all its work, whichever is more. The logarithms of both costs are fitted by
// gradient descent on the mean error of all rows.
//
// Each cell, which is a batch size and a sequence length of a model, has its own level. All its
// operators can thus cost more than those of another cell without a penalty on each of them.
type costFit struct {
	grids  []grid
	rows   []costRow
	priors costPriors

	// There is a parameter for each operator in each cell, and cellOf maps it to its cell. prior is
	// the logarithm of its expected microseconds. deviation is the logarithm of its microseconds
	// relative to prior and level. share is the logarithm of work over microseconds relative to
	// that of the cell.
	prior     []float64
	cellOf    []int
	deviation []float64
	share     []float64

	// level and levelShare are indexed by cell: the logarithm of microseconds over the prior, and
	// the logarithm of work over microseconds.
	level      []float64
	levelShare []float64

	// The costs by parameter, and the gradient of the loss by them.
	micros, work           []float64
	slopeMicros, slopeWork []float64

	// The prefix sums of the costs, with one element more, so that the cost of any span is a
	// difference.
	before, beforeWork []float64
}

// costRow is a row with the logarithm of its measured latency.
type costRow struct {
	spans []costSpan
	log   float64
}

// costSpan is a span of a row. shares are the cells from which its cost is interpolated, and
// micros and work hold its current cost.
type costSpan struct {
	start, end   int
	shares       []share
	micros, work float64
}

// Costs infers the isolated latency and the work of each model's operators from all groups of a
// dataset. It returns a cost grid for each model, over the batch sizes and sequence lengths of
// the rows, in microseconds. measured holds operator times by the name of their model, if
// profiling has measured any; the costs then keep their proportions. A model that no group
// contains has a meaningless grid of one cell. Equal arguments give equal costs.
func Costs(ctx context.Context, d *training.Dataset, measured map[string][]training.OperatorTimes) ([]*predictor.CostGrid, error) {
	o := DefaultOptions()
	o.Operators = measured
	// Too few rows for cross-validation get the strongest priors.
	priors := costPriorSets[len(costPriorSets)-1]
	if len(d.Rows) >= minTrainRows {
		_, r, err := regularizeCosts(ctx, d, d.Rows, &o, "costs")
		if err != nil {
			return nil, err
		}
		priors = r.priors
	}
	cells, err := inferCosts(ctx, d.Models, d.Rows, measured, priors, rand.New(rand.NewPCG(o.Seed, 1)))
	if err != nil {
		return nil, err
	}
	grids := make([]*predictor.CostGrid, len(cells))
	for i := range cells {
		grids[i] = predictor.NewCostGrid(cells[i])
	}
	return grids, nil
}

// inferCosts returns the inferred cost cells of each model.
func inferCosts(ctx context.Context, list []training.Model, rows []training.Row, measured map[string][]training.OperatorTimes, priors costPriors, random *rand.Rand) ([][]predictor.CostCell, error) {
	f := newCostFit(list, rows, measured, priors, random)
	slope := make([]float64, 2*len(f.deviation)+2*len(f.level))
	optimizer := &descent{mean: make([]float64, len(slope)), square: make([]float64, len(slope))}
	for step := range costSteps {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f.update()
		f.slopes(slope)
		optimizer.step(costRate*cosine(step, costSteps), slope, f.deviation, f.share, f.level, f.levelShare)
		// Without this limit, the work of an operator that no group constrains could grow forever.
		atMost(f.share, longestShare)
		atMost(f.levelShare, longestShare)
	}
	f.update()
	cells := make([][]predictor.CostCell, len(f.grids))
	for i := range f.grids {
		cells[i] = f.grids[i].featureCells(f.micros, f.work)
	}
	return cells, nil
}

// atMost limits values from above.
func atMost(values []float64, most float64) {
	for i, v := range values {
		values[i] = min(v, most)
	}
}

// newCostFit lays out the parameters and prepares the rows.
func newCostFit(list []training.Model, rows []training.Row, measured map[string][]training.OperatorTimes, priors costPriors, random *rand.Rand) *costFit {
	grids, cells, n := newGrids(list, rows)
	f := &costFit{grids: grids, priors: priors, prior: make([]float64, n), deviation: make([]float64, n), share: make([]float64, n)}
	f.level, f.levelShare = make([]float64, cells), make([]float64, cells)
	f.micros, f.work = make([]float64, n), make([]float64, n)
	f.slopeMicros, f.slopeWork = make([]float64, n+1), make([]float64, n+1)
	f.before, f.beforeWork = make([]float64, n+1), make([]float64, n+1)
	for cell := range f.levelShare {
		f.levelShare[cell] = firstShare
	}
	for i := range grids {
		for cell := range grids[i].cells() {
			f.cellOf = append(f.cellOf, slices.Repeat([]int{grids[i].firstCell + cell}, grids[i].operators)...)
		}
		f.setPrior(&grids[i], perOperator(rows, i), measured[list[i].Name])
	}
	// A random subset, not the first rows, which may all be groups of the same models.
	if len(rows) > maxCostRows {
		rows = at(rows, random.Perm(len(rows))[:maxCostRows])
	}
	for _, r := range rows {
		row := costRow{log: math.Log(r.Median)}
		for _, s := range r.Group.Spans {
			row.spans = append(row.spans, costSpan{start: s.Start, end: s.End, shares: grids[s.Service].shares(s)})
		}
		f.rows = append(f.rows, row)
	}
	return f
}

// perOperator returns a typical time of an operator of a model: the median, over the rows with
// the model, of the latency divided by the number of operators of all spans.
func perOperator(rows []training.Row, model int) float64 {
	var all []float64
	for i := range rows {
		operators, found := 0, false
		for _, s := range rows[i].Group.Spans {
			operators += s.Len()
			found = found || int(s.Service) == model
		}
		if found {
			all = append(all, rows[i].Median/float64(operators))
		}
	}
	if len(all) == 0 {
		return 1
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// setPrior sets the priors of a model's parameters. It uses the operator times measured at the
// nearest batch size and sequence length, or flat if there are none.
func (f *costFit) setPrior(g *grid, flat float64, measured []training.OperatorTimes) {
	measured = slices.DeleteFunc(slices.Clone(measured), func(m training.OperatorTimes) bool { return len(m.Micros) != g.operators })
	for at, c := range g.each {
		expected := slices.Repeat([]float64{flat}, g.operators)
		if len(measured) > 0 {
			expected = slices.MinFunc(measured, func(a, b training.OperatorTimes) int {
				return cmp.Compare(predictor.Apart(c.Size, c.SeqLen, a.Size, a.SeqLen), predictor.Apart(c.Size, c.SeqLen, b.Size, b.SeqLen))
			}).Micros
		}
		for o, micros := range expected {
			f.prior[at+o] = math.Log(max(micros, leastMicros))
		}
	}
}

// update computes the costs and their prefix sums from the logarithms.
//
// The loops of this fit are excluded from race detection: with it they would dominate the time
// of this package's tests, and all memory they access belongs to one goroutine.
//
//go:norace
func (f *costFit) update() {
	for i, cell := range f.cellOf {
		f.micros[i] = min(max(math.Exp(f.prior[i]+f.level[cell]+f.deviation[i]), leastMicros), mostMicros)
		f.work[i] = min(f.micros[i]*math.Exp(f.levelShare[cell]+f.share[i]), mostMicros)
		f.before[i+1] = f.before[i] + f.micros[i]
		f.beforeWork[i+1] = f.beforeWork[i] + f.work[i]
	}
}

// slopes sets slope to the gradient of the loss, including the priors. Its sections are the
// derivatives by deviation, by share, by level, and by levelShare.
//
//go:norace
func (f *costFit) slopes(slope []float64) {
	clear(slope)
	clear(f.slopeMicros)
	clear(f.slopeWork)
	for i := range f.rows {
		f.addRow(&f.rows[i])
	}
	n, cells := len(f.deviation), len(f.level)
	byDeviation, byShare := slope[:n], slope[n:2*n]
	byLevel, byLevelShare := slope[2*n:2*n+cells], slope[2*n+cells:]
	var micros, work float64
	for i, cell := range f.cellOf {
		// addSlope has added the derivative of a span at its start and subtracted it at its end, so
		// the running sum is the derivative by this parameter.
		micros += f.slopeMicros[i]
		work += f.slopeWork[i]
		byDeviation[i] = f.micros[i]*micros + f.work[i]*work
		byShare[i] = f.work[i] * work
		byLevel[cell] += byDeviation[i]
		byLevelShare[cell] += byShare[i]
	}
	f.addPriors(byDeviation, byShare, byLevel, byLevelShare)
	for i := range slope {
		slope[i] /= float64(len(f.rows))
	}
}

// addRow adds the gradient of one row. The derivatives of the 16-norm follow from
// predictor.Power16.
//
//go:norace
func (f *costFit) addRow(r *costRow) {
	var work, longest float64
	for k := range r.spans {
		s := &r.spans[k]
		s.micros, s.work = 0, 0
		for _, h := range s.shares {
			s.micros += h.weight * (f.before[h.at+s.end] - f.before[h.at+s.start])
			s.work += h.weight * (f.beforeWork[h.at+s.end] - f.beforeWork[h.at+s.start])
		}
		// A difference of prefix sums may lose a very short span.
		s.micros = max(s.micros, leastMicros)
		work += s.work
		longest = max(longest, s.micros)
	}
	// A span alone takes its isolated latency, whatever its work.
	if len(r.spans) == 1 {
		f.addSlope(&r.spans[0], r.pull(r.spans[0].micros)/r.spans[0].micros, 0)
		return
	}
	top := max(work, longest)
	sum := predictor.Power16(work / top)
	for k := range r.spans {
		sum += predictor.Power16(r.spans[k].micros / top)
	}
	base := top * math.Pow(sum, 1./16)
	pull := r.pull(base)
	byWork := pull * predictor.Power16(work/base) / work
	for k := range r.spans {
		s := &r.spans[k]
		f.addSlope(s, pull*predictor.Power16(s.micros/base)/s.micros, byWork)
	}
}

// pull returns the derivative of the row's error by the logarithm of its prediction. The error is a
// smoothed absolute value, so outliers have a bounded influence.
func (r *costRow) pull(base float64) float64 {
	off := math.Log(base) - r.log
	return off / math.Sqrt(off*off+costCorner*costCorner)
}

// addSlope adds the derivatives by the costs of a span, at its ends; see slopes.
//
//go:norace
func (f *costFit) addSlope(s *costSpan, byMicros, byWork float64) {
	for _, h := range s.shares {
		f.slopeMicros[h.at+s.start] += h.weight * byMicros
		f.slopeMicros[h.at+s.end] -= h.weight * byMicros
		f.slopeWork[h.at+s.start] += h.weight * byWork
		f.slopeWork[h.at+s.end] -= h.weight * byWork
	}
}

// maxKnots limits the batch sizes, and the sequence lengths, of a model that have their own
// cells. Others are interpolated.
const maxKnots = 8

// grid locates the cells of one model, one for each combination of a batch size and a sequence
// length. firstCell is the index of its first cell among the cells of all models, and first the
// index of that cell's first parameter.
type grid struct {
	operators int
	sizes     []int
	seqLens   []int
	first     int
	firstCell int
}

// share is the weight of a cell in a span's cost. at is the cell's first parameter.
type share struct {
	at     int
	weight float64
}

// newGrids lays out the cells of all models, and returns the numbers of cells and of
// parameters. A model that is in no row has one cell.
func newGrids(list []training.Model, rows []training.Row) (grids []grid, cells, parameters int) {
	sizes, seqLens := make([][]int, len(list)), make([][]int, len(list))
	for i := range rows {
		for _, s := range rows[i].Group.Spans {
			sizes[s.Service] = append(sizes[s.Service], s.Size)
			seqLens[s.Service] = append(seqLens[s.Service], s.SeqLen)
		}
	}
	grids = make([]grid, len(list))
	for i := range grids {
		if len(sizes[i]) == 0 {
			sizes[i], seqLens[i] = []int{1}, []int{0}
		}
		grids[i] = grid{operators: list[i].Operators, sizes: knots(sizes[i]), seqLens: knots(seqLens[i]), first: parameters, firstCell: cells}
		cells += grids[i].cells()
		parameters += grids[i].cells() * list[i].Operators
	}
	return grids, cells, parameters
}

// knots returns the distinct values, thinned evenly to maxKnots.
func knots(values []int) []int {
	slices.Sort(values)
	return stats.Thin(slices.Compact(values), maxKnots)
}

// cells returns the number of cells of the model.
func (g *grid) cells() int { return len(g.sizes) * len(g.seqLens) }

// cell returns the first parameter of the cell at these indices of sizes and sequence lengths.
func (g *grid) cell(size, seqLen int) int {
	return g.first + (seqLen*len(g.sizes)+size)*g.operators
}

// shares returns the cells around a span with their weights, as predictor.CostGrid interpolates.
func (g *grid) shares(s models.Span) (found []share) {
	b, larger := predictor.Beside(g.sizes, s.Size)
	q, longer := predictor.Beside(g.seqLens, s.SeqLen)
	for k, weight := range [4]float64{(1 - longer) * (1 - larger), (1 - longer) * larger, longer * (1 - larger), longer * larger} {
		if weight > 0 {
			found = append(found, share{g.cell(b+k%2, q+k/2), weight})
		}
	}
	return found
}

// each yields the first parameter of every cell, with the cell's size and sequence length.
func (g *grid) each(yield func(at int, c predictor.CostCell) bool) {
	for q, seqLen := range g.seqLens {
		for b, size := range g.sizes {
			if !yield(g.cell(b, q), predictor.CostCell{Size: size, SeqLen: seqLen}) {
				return
			}
		}
	}
}

// featureCells returns the cells in the form of a predictor file.
func (g *grid) featureCells(micros, work []float64) (cells []predictor.CostCell) {
	for at, c := range g.each {
		c.Micros = slices.Clone(micros[at : at+g.operators])
		c.Work = slices.Clone(work[at : at+g.operators])
		cells = append(cells, c)
	}
	return cells
}

package fit

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/training"
)

// Constants of inferring costs.
const (
	costSteps    = 600
	costRate     = 0.05
	maxCostRows  = 100_000 // more teach the costs nothing
	costCorner   = 0.01    // errors below it count by their square
	firstShare   = -0.7    // logarithm of work per solo time before anything is known
	leastMicros  = 1e-3
	mostMicros   = float64(predictor.MaxTime) / 1e3 // that a predictor takes
	longestShare = 3.0                              // logarithm
)

// costFit infers what each operator costs, and how much of that is work, from
// the latencies of groups: a group takes as long as the longest of its spans
// or as all their work, whichever is more. The logarithms of both costs
// descend the gradient of the mean error of all rows. A cell has a level of
// its own, so that all its operators can cost more than those of another cell
// without a penalty on each.
type costFit struct {
	grids  []grid
	rows   []costRow
	priors costPriors

	// A parameter is an operator in a cell, cellOf its cell. prior is the logarithm of
	// the microseconds expected of it, deviation that of the microseconds over prior and
	// level, share that of work over microseconds, over the share of the cell.
	prior     []float64
	cellOf    []int
	deviation []float64
	share     []float64

	// By cell: the logarithm of microseconds over the prior, and of work over
	// microseconds.
	level      []float64
	levelShare []float64

	// The costs by parameter, and the slopes of the loss by them.
	micros, work           []float64
	slopeMicros, slopeWork []float64

	// Sums of the costs before each parameter, one longer than these, which make the
	// cost of any span a difference.
	before, beforeWork []float64
}

// costRow is a row with the logarithm of its measured latency.
type costRow struct {
	spans []costSpan
	log   float64
}

type costSpan struct {
	start, end   int
	shares       []share
	micros, work float64
}

// Costs infers from all groups of a dataset what the operators of each model
// cost alone, by the model's position: a grid of microseconds, and how much of
// them is work, over the batch sizes and sequence lengths of the rows. measured
// are times of operators by the name of their model, where a profile has them;
// the costs then keep their proportions. A model of which no group was measured
// has a grid of one cell without meaning. The same arguments give the same
// costs.
func Costs(ctx context.Context, d *training.Dataset, measured map[string][]training.OperatorTimes) ([]*predictor.CostGrid, error) {
	o := DefaultOptions()
	o.Operators = measured
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

// inferCosts returns what the operators of each model cost.
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

func atMost(values []float64, most float64) {
	for i, v := range values {
		values[i] = min(v, most)
	}
}

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

// perOperator is about what an operator of a model takes: the median, over its
// rows, of the latency per operator of all spans.
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

// setPrior takes the costs that were measured for the nearest batch size and
// sequence length, where there are any.
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

// update sets costs and their sums from the logarithms. The race detector leaves out
// the loops of this fit, which one goroutine runs: instrumented, they are most of what
// the tests of this package take.
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

// slopes sets slope to the gradient of the mean error and the priors: by
// deviation, by share, by level, and by share of the cell.
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
		// The slopes of spans were added where they start and taken off where
		// they end.
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
		s.micros = max(s.micros, leastMicros)
		work += s.work
		longest = max(longest, s.micros)
	}
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

// pull is the slope of the row's error by the logarithm of its prediction.
func (r *costRow) pull(base float64) float64 {
	off := math.Log(base) - r.log
	return off / math.Sqrt(off*off+costCorner*costCorner)
}

//go:norace
func (f *costFit) addSlope(s *costSpan, byMicros, byWork float64) {
	for _, h := range s.shares {
		f.slopeMicros[h.at+s.start] += h.weight * byMicros
		f.slopeMicros[h.at+s.end] -= h.weight * byMicros
		f.slopeWork[h.at+s.start] += h.weight * byWork
		f.slopeWork[h.at+s.end] -= h.weight * byWork
	}
}

// maxKnots is how many batch sizes, and how many sequence lengths, of a model
// get cells of their own; those between are interpolated.
const maxKnots = 8

// grid is where the cells of one model lie: one for each size and sequence
// length among the knots. Its first cell is firstCell among those of all models, and
// the first operator of that the parameter first.
type grid struct {
	operators int
	sizes     []int
	seqLens   []int
	first     int
	firstCell int
}

// share is what a cell, whose first operator is the parameter at, counts for a span.
type share struct {
	at     int
	weight float64
}

// newGrids lays out the cells of all models, and returns how many cells and
// parameters there are. A model that is in no row has one cell.
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

// knots returns the distinct values, thinned out evenly if there are many.
func knots(values []int) []int {
	slices.Sort(values)
	return stats.Thin(slices.Compact(values), maxKnots)
}

func (g *grid) cells() int { return len(g.sizes) * len(g.seqLens) }

// cell returns the first parameter of a cell.
func (g *grid) cell(size, seqLen int) int {
	return g.first + (seqLen*len(g.sizes)+size)*g.operators
}

// shares returns the cells around a span, as an encoder takes them.
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

// each yields every cell, still without costs, by its first parameter.
func (g *grid) each(yield func(at int, c predictor.CostCell) bool) {
	for q, seqLen := range g.seqLens {
		for b, size := range g.sizes {
			if !yield(g.cell(b, q), predictor.CostCell{Size: size, SeqLen: seqLen}) {
				return
			}
		}
	}
}

// featureCells returns the cells as a predictor file holds them.
func (g *grid) featureCells(micros, work []float64) (cells []predictor.CostCell) {
	for at, c := range g.each {
		c.Micros = slices.Clone(micros[at : at+g.operators])
		c.Work = slices.Clone(work[at : at+g.operators])
		cells = append(cells, c)
	}
	return cells
}

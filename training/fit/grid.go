package fit

import (
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/stats"
	"github.com/overlapd/overlapd/training"
)

// maxKnots is how many batch sizes, and how many sequence lengths, of a model
// get cells of their own; those between are interpolated.
const maxKnots = 8

// grid is where the cells of one model lie: one for each size and sequence
// length among the knots.
type grid struct {
	operators int
	sizes     []int
	seqLens   []int
	first     int // the parameter of the first operator of the first cell
	firstCell int // among the cells of all models
}

// share is what a cell counts for a span.
type share struct {
	at     int // the parameter of the cell's first operator
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

// eachCell calls visit with each cell, and with those of the next smaller batch
// size and of the next shorter sequence.
func (g *grid) eachCell(visit func(cell int, beside []int)) {
	for q := range g.seqLens {
		for b := range g.sizes {
			cell := q*len(g.sizes) + b
			var beside []int
			if b > 0 {
				beside = append(beside, cell-1)
			}
			if q > 0 {
				beside = append(beside, cell-len(g.sizes))
			}
			visit(cell, beside)
		}
	}
}

// shares returns the cells around a span, as an encoder takes them.
func (g *grid) shares(s models.Span) (found []share) {
	add := func(q int, weight float64) {
		b, high := predictor.Beside(g.sizes, s.Size)
		found = append(found, share{g.cell(b, q), weight * (1 - high)})
		if high > 0 {
			found = append(found, share{g.cell(b+1, q), weight * high})
		}
	}
	q, high := predictor.Beside(g.seqLens, s.SeqLen)
	add(q, 1-high)
	if high > 0 {
		add(q+1, high)
	}
	return found
}

// featureCells returns the cells as a predictor file holds them.
func (g *grid) featureCells(micros, work []float64) []predictor.CostCell {
	var cells []predictor.CostCell
	for q, seqLen := range g.seqLens {
		for b, size := range g.sizes {
			at := g.cell(b, q)
			cells = append(cells, predictor.CostCell{
				Size: size, SeqLen: seqLen,
				Micros: slices.Clone(micros[at : at+g.operators]),
				Work:   slices.Clone(work[at : at+g.operators]),
			})
		}
	}
	return cells
}

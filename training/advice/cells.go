package advice

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/overlapd/overlapd/training"
)

// Limits of inferring solo times.
const (
	maxPieces     = 32   // a model's operators are cut into at most so many pieces of equal cost per operator
	maxCells      = 4096 // batch sizes and sequence lengths, over all models
	inferRounds   = 32   // of fitting cells and overlaps in turns
	leapEvery     = 4    // rounds
	longestLeap   = 20.0 // in steps of the round before
	descentRounds = 400  // of the non-negative least squares of one cell

	soloWeight   = 10.0 // what a group of one span counts for a solo time, against a group of several
	flatWeight   = 0.05 // what the assumption counts that all pieces cost the same
	shareWeight  = 8.0  // how many groups of its own a shape needs to count as much as its set of models
	maxExposed   = 1.5  // of the shorter spans; beyond 1 they hinder each other
	soloFewest   = 3    // groups of one span that make a solo time measured
	firstExposed = 0.5
	minMicros    = 1e-3
)

// cellKey names a batch size and a sequence length of a model.
type cellKey struct {
	model, size, seqLen int
}

func (k cellKey) compare(o cellKey) int {
	return cmp.Or(cmp.Compare(k.model, o.model), cmp.Compare(k.size, o.size), cmp.Compare(k.seqLen, o.seqLen))
}

// soloCell is what the operators of a model cost alone.
type soloCell struct {
	key       cellKey
	operators int
	cost      []float64 // of each piece, microseconds
	prefix    []float64 // of the operators before each one
	alone     int       // groups that held only this span
	groups    int       // groups that held it with others
	profiled  bool      // prefix is made of the times of its operators, not of cost
	source    SoloSource
}

func newSoloCell(k cellKey, operators int) *soloCell {
	return &soloCell{
		key:       k,
		operators: operators,
		cost:      make([]float64, min(operators, maxPieces)),
		prefix:    make([]float64, operators+1),
		source:    SoloInferred,
	}
}

// span returns what operators [start, end) take alone, in microseconds.
func (c *soloCell) span(start, end int) float64 { return c.prefix[end] - c.prefix[start] }

func (c *soloCell) whole() float64 { return c.prefix[c.operators] }

// update makes prefix from cost.
func (c *soloCell) update() {
	perOperator := float64(len(c.cost)) / float64(c.operators)
	for o := range c.operators {
		lo, hi := float64(o)*perOperator, float64(o+1)*perOperator
		took := 0.0
		for p := int(lo); p < len(c.cost) && float64(p) < hi; p++ {
			took += c.cost[p] * (min(hi, float64(p+1)) - max(lo, float64(p)))
		}
		c.prefix[o+1] = c.prefix[o] + took
	}
}

// cover sets x to how much of each piece operators [start, end) hold, and
// returns the first piece and the one behind the last.
func (c *soloCell) cover(start, end int, x []float64) (first, last int) {
	perOperator := float64(len(c.cost)) / float64(c.operators)
	lo, hi := float64(start)*perOperator, float64(end)*perOperator
	first, last = int(lo), min(int(math.Ceil(hi)), len(c.cost))
	for p := first; p < last; p++ {
		x[p] = max(min(hi, float64(p+1))-max(lo, float64(p)), 0)
	}
	return first, last
}

// scale makes the whole model take the given time.
func (c *soloCell) scale(micros float64) {
	if c.profiled {
		factor := micros / c.whole()
		for o := range c.prefix {
			c.prefix[o] *= factor
		}
		return
	}
	if c.whole() < minMicros {
		for p := range c.cost {
			c.cost[p] = micros / float64(len(c.cost))
		}
	} else {
		factor := micros / c.whole()
		for p := range c.cost {
			c.cost[p] *= factor
		}
	}
	c.update()
}

// cellSpan is a span that belongs to a cell.
type cellSpan struct {
	cell       *soloCell
	start, end int
}

func (s cellSpan) solo() float64 { return s.cell.span(s.start, s.end) }

// cellRow is a measured group.
type cellRow struct {
	spans  []cellSpan
	micros float64 // measured
	shape  *shape  // nil for a group of one span
}

// longest returns the sum and the maximum of the solo times.
func (r *cellRow) longest() (sum, most float64, at int) {
	for i, s := range r.spans {
		t := s.solo()
		sum += t
		if t > most {
			most, at = t, i
		}
	}
	return sum, most, at
}

// shape is the groups of the same models at the same batch sizes. Of the time
// of the shorter spans, a part is hidden behind the longest one and the rest
// is exposed: latency = longest + exposed * (sum - longest).
type shape struct {
	set                *setRows
	exposed            float64
	moved, movedBefore float64 // in the last two rounds

	top    float64 // of the least squares that give exposed
	bottom float64
}

// setRows is the groups of one set of models.
type setRows struct {
	models []int
	rows   []*cellRow
	shape  shape // over all batch sizes
}

// cells is a dataset seen as solo times and overlaps.
type cells struct {
	byKey map[cellKey]*soloCell
	list  []*soloCell // sorted
	rows  []*cellRow
	sets  []*setRows // sorted by models
	all   []*shape
}

// newCells sorts a dataset into cells.
func newCells(d *training.Dataset) (*cells, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	c := &cells{byKey: map[cellKey]*soloCell{}}
	sets, shapes := map[string]*setRows{}, map[string]*shape{}
	for _, r := range d.Rows {
		row, models, sizes, err := c.row(d, r)
		if err != nil {
			return nil, err
		}
		c.rows = append(c.rows, row)
		if len(row.spans) == 1 {
			row.spans[0].cell.alone++
			continue
		}
		for _, s := range row.spans {
			s.cell.groups++
		}
		name := fmt.Sprint(models)
		set := sets[name]
		if set == nil {
			set = &setRows{models: models}
			sets[name] = set
		}
		set.rows = append(set.rows, row)
		name += fmt.Sprint(sizes)
		if shapes[name] == nil {
			shapes[name] = &shape{set: set, exposed: firstExposed}
			c.all = append(c.all, shapes[name])
		}
		row.shape = shapes[name]
	}
	c.list = slices.SortedFunc(maps.Values(c.byKey), func(a, b *soloCell) int { return a.key.compare(b.key) })
	c.sets = slices.SortedFunc(maps.Values(sets), func(a, b *setRows) int { return slices.Compare(a.models, b.models) })
	return c, nil
}

func (c *cells) row(d *training.Dataset, r training.Row) (row *cellRow, models, sizes []int, err error) {
	row = &cellRow{micros: r.Median}
	for _, s := range r.Group.Spans {
		k := cellKey{int(s.Service), s.Size, s.SeqLen}
		cell := c.byKey[k]
		if cell == nil {
			if len(c.byKey) >= maxCells {
				return nil, nil, nil, fmt.Errorf("%w: more than %d batch sizes and sequence lengths", training.ErrLimit, maxCells)
			}
			cell = newSoloCell(k, d.Models[k.model].Operators)
			c.byKey[k] = cell
		}
		row.spans = append(row.spans, cellSpan{cell, s.Start, s.End})
		models, sizes = append(models, k.model), append(sizes, s.Size)
	}
	return row, models, sizes, nil
}

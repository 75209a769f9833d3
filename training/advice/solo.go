package advice

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
	"github.com/overlapd/overlapd/training/fit"
)

// Limits of isolated latencies.
const (
	// maxCells limits the batch sizes and sequence lengths over all models.
	maxCells = 4096
	// soloFewest is the number of groups of one span from which on a latency counts as measured.
	soloFewest = 3
	// leastMicros is the least sum of operator times that carries information.
	leastMicros = 1e-3
)

// The sources of an isolated latency.
const (
	// soloMeasured means groups of one span.
	soloMeasured = "measured"
	// soloGiven means a list of isolated latencies.
	soloGiven = "file"
	// SoloProfiled means the sum of the times of its operators.
	SoloProfiled = "operators"
	// SoloInferred means groups of several spans.
	SoloInferred = "inferred"
)

// soloTime is the isolated latency of a whole model.
type soloTime struct {
	Model  string  `json:"model"`
	Size   int     `json:"size"`
	SeqLen int     `json:"seq_len"`
	Micros float64 `json:"micros"`
	Source string  `json:"source"`
	// Alone counts the groups with only a span of the model, and Groups those with others.
	Alone  int `json:"alone"`
	Groups int `json:"groups"`
}

// cellKey identifies a batch size and a sequence length of a model.
type cellKey struct {
	model, size, seqLen int
}

// soloCell holds the isolated latencies of a model's operators for one cellKey.
type soloCell struct {
	soloTime
	key cellKey
	// prefix[i] is the time of the operators before i, in microseconds.
	prefix []float64

	// costs returns the cost of operators [start, end) as inferred from all groups, and its work,
	// in microseconds.
	costs func(start, end int) (micros, work float64)
}

// span returns the isolated latency of operators [start, end) in microseconds.
func (c *soloCell) span(start, end int) float64 { return c.prefix[end] - c.prefix[start] }

// whole returns the isolated latency of the whole model in microseconds.
func (c *soloCell) whole() float64 { return c.prefix[len(c.prefix)-1] }

// scale sets the time of the whole model and keeps the proportions of its operators.
func (c *soloCell) scale(micros float64) {
	whole := c.whole()
	for o := range c.prefix {
		// The proportions are unknown, so all operators get the same time.
		if whole < leastMicros {
			c.prefix[o] = micros * float64(o) / float64(len(c.prefix)-1)
		} else {
			c.prefix[o] *= micros / whole
		}
	}
}

// spread sets the time of each operator in microseconds. If enough spans ran alone, the time of
// the whole model stays as measured; otherwise it becomes the sum of the operators.
func (c *soloCell) spread(micros []float64) {
	whole, sum := c.whole(), 0.0
	for _, m := range micros {
		sum += m
	}
	if sum < leastMicros {
		return
	}
	for o, m := range micros {
		c.prefix[o+1] = c.prefix[o] + m
	}
	if c.Source == soloMeasured {
		c.scale(whole)
		return
	}
	c.Source = SoloProfiled
}

// measuredGroup holds the latency of several spans together, and the spans.
type measuredGroup struct {
	micros float64
	// inferred is the latency according to the costs inferred from all groups.
	inferred float64
	spans    []cellSpan
}

// cellSpan is operators [start, end) of a batch.
type cellSpan struct {
	cell       *soloCell
	start, end int
}

// alone returns the sum of the isolated latencies of the spans, and the longest of them.
func (g *measuredGroup) alone() (sum, most float64) {
	for _, s := range g.spans {
		micros := s.cell.span(s.start, s.end)
		sum, most = sum+micros, max(most, micros)
	}
	return sum, most
}

// soloTimes holds a dataset as isolated latencies and as sets of groups that refer to them.
type soloTimes struct {
	cells map[cellKey]*soloCell
	// sets are sorted by models.
	sets []*setGain
}

// newSoloTimes collects the rows of a dataset, and infers the operator costs that explain them
// best.
func newSoloTimes(ctx context.Context, d *training.Dataset, o *Options) (*soloTimes, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	t := &soloTimes{cells: map[cellKey]*soloCell{}}
	sets := map[string]*setGain{}
	for _, r := range d.Rows {
		if err := t.add(d, r, sets); err != nil {
			return nil, err
		}
	}
	t.sets = slices.SortedFunc(maps.Values(sets), func(a, b *setGain) int { return slices.Compare(a.members, b.members) })
	if err := t.infer(ctx, d, o); err != nil {
		return nil, err
	}
	// Later sources take precedence: measured operators over inferred costs, and a list over both.
	t.spread(d, o.Operators)
	t.give(d, o.Solo)
	return t, nil
}

// add counts a row. A group of several spans is added to the set of its models.
func (t *soloTimes) add(d *training.Dataset, r training.Row, sets map[string]*setGain) error {
	g := measuredGroup{micros: r.Median}
	var models []int
	for _, s := range r.Group.Spans {
		k := cellKey{int(s.Service), s.Size, s.SeqLen}
		cell := t.cells[k]
		if cell == nil {
			if len(t.cells) >= maxCells {
				return fmt.Errorf("%w: more than %d batch sizes and sequence lengths", training.ErrLimit, maxCells)
			}
			cell = &soloCell{key: k, soloTime: soloTime{Model: d.Models[k.model].Name, Size: k.size, SeqLen: k.seqLen, Source: SoloInferred}}
			t.cells[k] = cell
		}
		g.spans, models = append(g.spans, cellSpan{cell, s.Start, s.End}), append(models, k.model)
	}
	// A group of one span says nothing about gains. Its time enters the costs.
	if len(g.spans) == 1 {
		g.spans[0].cell.Alone++
		return nil
	}
	for _, s := range g.spans {
		s.cell.Groups++
	}
	name := fmt.Sprint(models)
	if sets[name] == nil {
		sets[name] = &setGain{members: models}
	}
	sets[name].rows = append(sets[name].rows, g)
	return nil
}

// infer sets the time of every operator to the cost inferred from all groups.
func (t *soloTimes) infer(ctx context.Context, d *training.Dataset, o *Options) error {
	if len(d.Rows) == 0 {
		return nil
	}
	grids, err := fit.Costs(ctx, d, o.Operators)
	if err != nil {
		return err
	}
	for _, c := range t.cells {
		costs := grids[c.key.model].At(c.key.size, c.key.seqLen)
		c.prefix = make([]float64, d.Models[c.key.model].Operators+1)
		for end := range c.prefix {
			c.prefix[end], _ = costs.Span(0, end)
		}
		if c.Alone >= soloFewest {
			c.Source = soloMeasured
		}
		c.costs = costs.Span
	}
	// The inferred latency of each group shows how well the costs explain it; see noise.
	for _, set := range t.sets {
		for i := range set.rows {
			var alone []float64
			all := 0.0
			for _, s := range set.rows[i].spans {
				micros, work := s.cell.costs(s.start, s.end)
				alone, all = append(alone, micros), all+work
			}
			set.rows[i].inferred = predictor.Together(alone, all)
		}
	}
	return nil
}

// spread applies the times of operators that were measured one by one.
func (t *soloTimes) spread(d *training.Dataset, operators map[string][]training.OperatorTimes) {
	for i, m := range d.Models {
		for _, o := range operators[m.Name] {
			if c := t.cells[cellKey{i, o.Size, o.SeqLen}]; c != nil && len(o.Micros) == m.Operators {
				c.spread(o.Micros)
			}
		}
	}
}

// give scales whole models to the isolated latencies in a list.
func (t *soloTimes) give(d *training.Dataset, list []training.SoloTime) {
	for _, s := range list {
		m := d.Model(s.Model)
		if c := t.cells[cellKey{m, s.Size, s.SeqLen}]; m >= 0 && c != nil {
			c.scale(s.Micros)
			c.Source = soloGiven
		}
	}
}

// list returns the isolated latencies from which gains are computed, sorted.
func (t *soloTimes) list() []soloTime {
	list := make([]soloTime, 0, len(t.cells))
	keys := slices.SortedFunc(maps.Keys(t.cells), func(a, b cellKey) int {
		return cmp.Or(cmp.Compare(a.model, b.model), cmp.Compare(a.size, b.size), cmp.Compare(a.seqLen, b.seqLen))
	})
	for _, k := range keys {
		c := t.cells[k]
		c.Micros = c.whole()
		list = append(list, c.soloTime)
	}
	return list
}

package advice

import (
	"slices"

	"github.com/overlapd/overlapd/stats"
)

// infer fits solo times to all groups. Each is taken to last as long as its
// longest span and the exposed part of the others. Solo times and exposed
// parts are fitted in turns: groups in which all but one span are short tell
// the solo times, the others tell how much of the shorter spans is hidden.
func (c *cells) infer() {
	gather := map[*soloCell][]cellUse{}
	for _, r := range c.rows {
		for i, s := range r.spans {
			gather[s.cell] = append(gather[s.cell], cellUse{r, i})
		}
	}
	for _, cell := range c.list {
		cell.start(gather[cell])
		if cell.alone >= soloFewest {
			cell.source = SoloMeasured
		}
	}
	for round := range inferRounds {
		c.fitShapes()
		if round%leapEvery == leapEvery-1 {
			c.leap()
		}
		for _, cell := range c.list {
			cell.fit(gather[cell])
		}
	}
	c.fitShapes()
}

// cellUse is a row and the position in it of a span of a cell.
type cellUse struct {
	row *cellRow
	at  int
}

// start sets all pieces to what the shortest groups allow: a span takes no
// longer alone than a group that held it.
func (c *soloCell) start(uses []cellUse) {
	perOperator := make([]float64, 0, len(uses))
	for _, u := range uses {
		s := u.row.spans[u.at]
		perOperator = append(perOperator, u.row.micros/float64(s.end-s.start))
	}
	slices.Sort(perOperator)
	c.scale(stats.Quantile(perOperator, 0.1) * float64(c.operators))
}

// fit sets the pieces by non-negative least squares of the relative errors,
// all other cells being as they are.
func (c *soloCell) fit(uses []cellUse) {
	n := len(c.cost)
	g := gram{n: n, a: make([]float64, n*n), b: make([]float64, n)}
	x := make([]float64, n)
	for _, u := range uses {
		target, weight := u.target()
		s := u.row.spans[u.at]
		first, last := c.cover(s.start, s.end, x)
		g.add(x, first, last, target, weight/(u.row.micros*u.row.micros))
	}
	g.flatten(flatWeight)
	g.solve(c.cost)
	c.update()
}

// target returns what the row says of the span alone, and what that weighs:
// little if much of the span was hidden behind another.
func (u cellUse) target() (micros, weight float64) {
	r := u.row
	if len(r.spans) == 1 {
		return r.micros, soloWeight
	}
	sum, most, at := r.longest()
	own := r.spans[u.at].solo()
	exposed := r.shape.exposed
	if at == u.at {
		return max(r.micros-exposed*(sum-own), 0), 1
	}
	rest := most + exposed*(sum-most-own)
	if exposed < 0.05 {
		return own, 0
	}
	return max(r.micros-rest, 0) / exposed, exposed * exposed
}

// fitShapes sets the exposed part of every shape, those with few groups
// leaning on all groups of their models.
func (c *cells) fitShapes() {
	for _, s := range c.all {
		s.top, s.bottom = 0, 0
	}
	for _, set := range c.sets {
		set.shape = shape{}
		for _, r := range set.rows {
			sum, most, _ := r.longest()
			rest := (sum - most) / r.micros
			over := (r.micros - most) / r.micros
			for _, s := range []*shape{r.shape, &set.shape} {
				s.top += over * rest
				s.bottom += rest * rest
			}
		}
		set.shape.settle(firstExposed, 1e-9)
	}
	for _, s := range c.all {
		lean := shareWeight * s.set.shape.bottom / float64(len(s.set.rows))
		before := s.exposed
		s.settle(s.set.shape.exposed, lean)
		s.moved, s.movedBefore = s.exposed-before, s.moved
	}
}

// leap goes ahead where fitting in turns creeps: few groups tell solo times and
// exposed parts apart only a little, and then each round covers the same small
// part of the way that is left. That part is known from the last two rounds.
func (c *cells) leap() {
	top, bottom := 0.0, 0.0
	for _, s := range c.all {
		top += s.moved * s.movedBefore
		bottom += s.movedBefore * s.movedBefore
	}
	if top <= 0 {
		return
	}
	left := min(top/bottom, longestLeap/(1+longestLeap))
	for _, s := range c.all {
		s.exposed = min(max(s.exposed+s.moved*left/(1-left), 0), maxExposed)
	}
}

func (s *shape) settle(prior, weight float64) {
	s.exposed = min(max((s.top+prior*weight)/(s.bottom+weight), 0), maxExposed)
}

// gram is the normal equations of a least-squares problem.
type gram struct {
	n    int
	a, b []float64
}

// add adds a row of the problem, which is zero outside [first, last).
func (g *gram) add(x []float64, first, last int, target, weight float64) {
	for i := first; i < last; i++ {
		w := weight * x[i]
		for j := first; j < last; j++ {
			g.a[i*g.n+j] += w * x[j]
		}
		g.b[i] += w * target
	}
}

// flatten pulls each unknown to its neighbours, by a part of the mean of the
// diagonal: unknowns that no row tells apart come out equal.
func (g *gram) flatten(part float64) {
	mean := 0.0
	for i := range g.n {
		mean += g.a[i*g.n+i]
	}
	w := part * mean / float64(g.n*g.n)
	for i := 1; i < g.n; i++ {
		j := i - 1
		g.a[i*g.n+i] += w
		g.a[j*g.n+j] += w
		g.a[i*g.n+j] -= w
		g.a[j*g.n+i] -= w
	}
}

// solve improves x, which stays non-negative, by coordinate descent.
func (g *gram) solve(x []float64) {
	for range descentRounds {
		moved, size := 0.0, 0.0
		for i := range g.n {
			diagonal := g.a[i*g.n+i]
			if diagonal <= 0 {
				continue
			}
			slope := g.b[i]
			for j := range g.n {
				slope -= g.a[i*g.n+j] * x[j]
			}
			to := max(x[i]+slope/diagonal, 0)
			moved = max(moved, to-x[i], x[i]-to)
			size = max(size, to)
			x[i] = to
		}
		if moved <= 1e-6*size {
			return
		}
	}
}

package predictor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Limits of a table.
const (
	MaxServices  = 128 // that a table may come to have: twice those that are served, so that all can be replaced
	MaxCells     = 64  // of one service
	maxOperators = 1 << 16
	MaxSize      = 1 << 16   // batch size
	MaxSeqLen    = 1 << 20   // sequence length
	MaxTime      = time.Hour // of one span
)

var (
	// errRange is returned when a service, span, batch size, sequence length
	// or time is not one that the table can hold. Nothing has changed.
	errRange = errors.New("out of range")

	errDropped = fmt.Errorf("the service was dropped: %w", errRange) // made once: a scheduler may ask often

	// errSnapshot is returned when a snapshot is not one of this service or
	// is damaged. The table has not changed.
	errSnapshot = errors.New("unusable snapshot of solo times")
)

// Solo is the table of solo times.
type Solo struct {
	services []soloService
	now      time.Duration // when the run ended that is observed
}

type soloService struct {
	// operators is 0 if there is no such service any more.
	operators int

	// model counts the models that had this ID before the one that has it.
	model int

	// cells are sorted by sequence length, then size.
	cells []*cell

	// cut is what a part of the model takes beside its operators, in nanoseconds: to
	// begin and end in the middle is not free. parts counts those it was learned from.
	cut   float64
	parts int
	cutAt time.Duration // when a part last ran

	// asked are the cells around the batch that was asked about last.
	asked around
}

// NewSolo returns an empty table for services with the given numbers of
// operators. A service's ID is its position.
func NewSolo(operators ...int) (*Solo, error) {
	t := &Solo{}
	for i, n := range operators {
		if err := t.Reset(models.ServiceID(i), n); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Reset forgets what is known of a service, whose model has the given number of
// operators from now on. It may be a service that was dropped, or one more than
// there were: its ID is then the next one.
func (t *Solo) Reset(service models.ServiceID, operators int) error {
	if next := len(t.services); service < 0 || int(service) > next || service >= MaxServices {
		return fmt.Errorf("service %d: want 0 to %d, and less than %d: %w", service, next, MaxServices, errRange)
	}
	if operators < 1 || operators > maxOperators {
		return fmt.Errorf("service %d has %d operators: %w", service, operators, errRange)
	}
	if int(service) == len(t.services) {
		t.services = append(t.services, soloService{operators: operators})
		return nil
	}
	t.services[service].replace(operators)
	return nil
}

// Drop forgets a service. Nothing is known of its ID until Reset gives it to
// another one. Where there is a [Predictor], call its Drop instead.
func (t *Solo) Drop(service models.ServiceID) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	sv.replace(0)
	return nil
}

// replace makes room for another model.
func (sv *soloService) replace(operators int) {
	*sv = soloService{operators: operators, model: sv.model + 1}
}

// Span returns the solo time of a span. It is false if nothing is known of
// the service. A batch size between two measured ones is interpolated, one
// beyond is taken in proportion to the nearest, and an unmeasured sequence
// length in proportion to the nearest one.
func (t *Solo) Span(s models.Span) (time.Duration, bool) {
	s, times := s.Once()
	sv, err := t.service(s.Service)
	if err != nil || sv.check(s.Start, s.End, s.Size, s.SeqLen) != nil {
		return 0, false
	}
	nanos := float64(times) * sv.span(s.Start, s.End, s.Size, s.SeqLen)
	return duration(nanos), nanos > 0
}

// SetOperators sets the solo time of every operator, in nanoseconds, for one
// batch size and sequence length.
func (t *Solo) SetOperators(service models.ServiceID, size, seqLen int, nanos []int64) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	if err := sv.check(0, len(nanos), size, seqLen); err != nil {
		return err
	}
	if len(nanos) != sv.operators {
		return fmt.Errorf("%d operator times for %d operators: %w", len(nanos), sv.operators, errRange)
	}
	for i, n := range nanos {
		if n < 0 || n > int64(MaxTime) {
			return fmt.Errorf("operator %d takes %d ns: %w", i, n, errRange)
		}
	}
	sv.asked = around{}
	c := sv.cell(size, seqLen)
	if c == nil {
		if len(sv.cells) >= MaxCells {
			return fmt.Errorf("more than %d batch sizes and sequence lengths: %w", MaxCells, errRange)
		}
		c = sv.insert(newCell(size, seqLen, sv.operators))
	}
	for i, n := range nanos {
		c.Nanos[i] = max(float64(n), minNanos)
	}
	c.Observations = max(c.Observations, settleAfter)
	c.sum()
	return nil
}

// Observe takes in what a span took that ran alone. The first observations of
// a batch size and sequence length count once there are enough to tell a cold
// start from the rule. A service that has all its cells learns from further
// ones by their nearest cell, as far as they differ from what is interpolated. Where
// there is no cell and the estimate is exact, nothing is to be learned.
func (t *Solo) Observe(service models.ServiceID, start, end, size, seqLen int, took time.Duration) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	if err := sv.check(start, end, size, seqLen); err != nil {
		return err
	}
	if took <= 0 || took > MaxTime {
		return fmt.Errorf("span took %v: %w", took, errRange)
	}
	c, expected := sv.cell(size, seqLen), sv.span(start, end, size, seqLen)
	sv.asked = around{}
	switch {
	case c != nil:
		sv.observe(t.now, c, start, end, float64(took))
	case expected == float64(took):
	case len(sv.cells) < MaxCells:
		sv.insert(sv.seed(start, end, size, seqLen, float64(took))).at = t.now
	default:
		c := sv.nearest(size, seqLen)
		if !c.settled() || expected == 0 {
			sv.observe(t.now, c, start, end, float64(took)*c.proportion(size, seqLen))
		} else {
			sv.observe(t.now, c, start, end, float64(took)/expected*sv.withCut(c.span(start, end), start, end))
		}
	}
	return nil
}

func (t *Solo) service(id models.ServiceID) (*soloService, error) {
	if id < 0 || int(id) >= len(t.services) {
		return nil, fmt.Errorf("service %d of %d: %w", id, len(t.services), errRange)
	}
	if t.services[id].operators == 0 {
		return nil, errDropped
	}
	return &t.services[id], nil
}

func (sv *soloService) check(start, end, size, seqLen int) error {
	switch {
	case start < 0 || start >= end || end > sv.operators:
		return fmt.Errorf("span [%d,%d) of %d operators: %w", start, end, sv.operators, errRange)
	case size < 1 || size > MaxSize:
		return fmt.Errorf("batch size %d: %w", size, errRange)
	case seqLen < 0 || seqLen > MaxSeqLen:
		return fmt.Errorf("sequence length %d: %w", seqLen, errRange)
	}
	return nil
}

// maxSpan limits the estimate for a span. It is above what any does,
// and the sum over a group of spans is still a time.
const maxSpan = time.Duration(1 << 56)

// duration rounds up, so that what is known is never 0.
func duration(nanos float64) time.Duration {
	if nanos >= float64(maxSpan) {
		return maxSpan
	}
	d := time.Duration(nanos)
	if float64(d) < nanos {
		d++
	}
	return d
}

const (
	// settleAfter is how many observations a cell needs before it is used.
	// Until then it keeps the least, because the first runs of a shape pay
	// for memory and caches, and an estimate that is too high could make the
	// scheduler drop every query and so never be corrected.
	settleAfter = 3

	// weight is what one observation counts in the running estimate.
	weight = 1.0 / 8

	// outlier is by which factor an observation may exceed the estimate; one
	// that exceeds it by more counts as if it did by that.
	outlier = 2.0

	// minNanos is the least time of an operator. It keeps every time
	// positive, so that it can be scaled.
	minNanos = 1.0

	// faster is the ratio below which an observation is no noise: hiccups make
	// a span slower, never that much faster. The estimate then goes half the
	// way at once, because one that is too high drops queries for nothing.
	faster = 2.0 / 3

	maxNanos = float64(MaxTime)

	// expireAfter is how long an estimate stands that keeps what it estimates from running:
	// the time of a batch size that merging avoids, and the cost of cutting where nothing is
	// cut. For a size that takes long it is expireRuns of its runs, so that trying a size
	// which is as slow as it seems costs little.
	expireAfter = 4 * time.Second
	expireRuns  = 8

	// hopeful is what part of the time in proportion to a smaller size an expired one is
	// taken to need: little less, but enough for merging to try it.
	hopeful = 0.99
)

// cell holds the solo time in nanoseconds of every operator of a service for one
// batch size and sequence length; sums[i] is the sum of Nanos[:i], so that the time
// of any span is one difference.
type cell struct {
	cellSnapshot
	sums []float64
	at   time.Duration // when it was last observed
}

func newCell(size, seqLen, operators int) *cell {
	k := cellSnapshot{Size: size, SeqLen: seqLen, Nanos: make([]float64, operators)}
	return &cell{cellSnapshot: k, sums: make([]float64, operators+1)}
}

func (c *cell) settled() bool { return c.Observations >= settleAfter }

// span is at least minNanos even where the sums are too coarse for it.
func (c *cell) span(start, end int) float64 {
	return max(c.sums[end]-c.sums[start], minNanos)
}

func (c *cell) sum() {
	for i, n := range c.Nanos {
		c.sums[i+1] = c.sums[i] + n
	}
}

// observe moves what is known of a span towards what the span took. Each of its
// operators keeps its fraction of it. Whether a part of the model was off by its
// operators or by the cut is not known: the operators get the share that they are of the
// model, the cut gets the rest. So parts of different lengths tell the two apart. The
// first parts count more for the cut, of which nothing was measured before.
func (sv *soloService) observe(now time.Duration, c *cell, start, end int, took float64) {
	if !sv.divides(start, end) && now-sv.cutAt > expireAfter {
		sv.cut, sv.parts = 0, 0 // expired
	}
	operators, settled := c.span(start, end), c.settled()
	expected, share := sv.withCut(operators, start, end), 1.0
	if sv.divides(start, end) {
		share = operators / c.sums[sv.operators]
	}
	ratio := took / expected
	switch {
	case !settled:
		ratio = min(ratio, 1)
	case ratio < 1 && sv.valid(c) < 1: // what was known has expired
	case ratio < faster:
		ratio = (1 + ratio) / 2
	default:
		ratio = 1 + weight*(min(ratio, outlier)-1)
	}
	off := (ratio - 1) * expected
	c.scale(start, end, max(1+share*off/operators, min(ratio, 1)))
	if c.Observations < 1<<30 {
		c.Observations++
	}
	c.at = now
	if settled && sv.divides(start, end) {
		sv.cutAt = now
		sv.parts = min(sv.parts+1, 1/weight)
		off *= (1 - share) / (weight * float64(sv.parts))
		sv.cut = min(max(sv.cut+off, 0), maxNanos)
	}
}

// withCut adds to what the operators of a span take what a part takes beside them.
func (sv *soloService) withCut(nanos float64, start, end int) float64 {
	if sv.divides(start, end) {
		nanos += sv.cut
	}
	return nanos
}

// divides reports whether a span is not the whole model.
func (sv *soloService) divides(start, end int) bool { return end-start < sv.operators }

func (c *cell) scale(start, end int, ratio float64) {
	for i := start; i < end; i++ {
		c.Nanos[i] = min(max(c.Nanos[i]*ratio, minNanos), maxNanos)
	}
	c.sum()
}

// valid returns which part of a cell's time still counts: all of it, or what makes it a
// little less than in proportion to a smaller size of the same sequence length that has run
// since it expired. A size that seems slow does not run, and nothing would ever correct it:
// an estimate that only prevents work must expire.
func (sv *soloService) valid(c *cell) float64 {
	if c == nil {
		return 1
	}
	took := c.sums[sv.operators]
	after, most := max(expireAfter, time.Duration(expireRuns*took)), took
	for _, o := range sv.cells {
		if o.SeqLen == c.SeqLen && o.Size < c.Size && o.settled() && o.at-c.at > after {
			most = min(most, hopeful*o.sums[sv.operators]/o.proportion(c.Size, c.SeqLen))
		}
	}
	return most / took
}

// seed returns a cell from its first observation. What the operators take in
// proportion to each other is known from other cells, else taken as equal.
func (sv *soloService) seed(start, end, size, seqLen int, took float64) *cell {
	c := newCell(size, seqLen, sv.operators)
	for i := range c.Nanos {
		c.Nanos[i] = max(sv.estimate(i, i+1, size, seqLen), minNanos)
	}
	c.sum()
	c.scale(0, sv.operators, took/sv.withCut(c.span(start, end), start, end))
	c.Observations = 1
	return c
}

// find returns where the cell of this size and sequence length is, or belongs.
func (sv *soloService) find(size, seqLen int) (int, bool) {
	at := sort.Search(len(sv.cells), func(i int) bool {
		c := sv.cells[i]
		return c.SeqLen > seqLen || c.SeqLen == seqLen && c.Size >= size
	})
	return at, at < len(sv.cells) && sv.cells[at].SeqLen == seqLen && sv.cells[at].Size == size
}

// cell returns the cell of exactly this size and sequence length, or nil.
func (sv *soloService) cell(size, seqLen int) *cell {
	if i, ok := sv.find(size, seqLen); ok {
		return sv.cells[i]
	}
	return nil
}

func (sv *soloService) insert(c *cell) *cell {
	sv.asked = around{}
	i, _ := sv.find(c.Size, c.SeqLen)
	sv.cells = slices.Insert(sv.cells, i, c)
	return c
}

// around holds the cells that the time of a batch is interpolated from: one cell
// twice if it is that of the batch, nil on a side where there is none.
type around struct {
	size, seqLen int
	below, above *cell
	low, high    float64 // which part of their times counts
}

// around returns the cells around a batch. It remembers the last, since a
// scheduler asks about one batch many times.
func (sv *soloService) around(size, seqLen int) *around {
	if a := &sv.asked; a.size == size && a.seqLen == seqLen {
		return a
	}
	a := around{size: size, seqLen: seqLen}
	if c := sv.cell(size, seqLen); c != nil && c.settled() {
		a.below, a.above = c, c
	} else {
		a.below, a.above = sv.neighbours(size, seqLen)
	}
	a.low, a.high = sv.valid(a.below), sv.valid(a.above)
	sv.asked = a
	return &sv.asked
}

// span returns the time of a span in nanoseconds, or 0 if no cell has settled.
func (sv *soloService) span(start, end, size, seqLen int) float64 {
	nanos := sv.estimate(start, end, size, seqLen)
	if nanos == 0 {
		return 0
	}
	return sv.withCut(nanos, start, end)
}

// estimate returns the time of operators [start, end) in nanoseconds, or 0 if
// no cell has settled.
func (sv *soloService) estimate(start, end, size, seqLen int) float64 {
	a := sv.around(size, seqLen)
	below, above := a.below, a.above
	switch {
	case below == nil && above == nil:
		return 0
	case above == nil:
		return a.low * below.span(start, end) / below.proportion(size, seqLen)
	case below == nil || below == above:
		return a.high * above.span(start, end) / above.proportion(size, seqLen)
	}
	low := a.low * below.span(start, end) / below.proportion(below.Size, seqLen)
	high := a.high * above.span(start, end) / above.proportion(above.Size, seqLen)
	return low + (high-low)*float64(size-below.Size)/float64(above.Size-below.Size)
}

// neighbours returns the settled cells of the nearest sequence length that
// are the nearest in size, at most and at least the given one; nil where there
// is none. Of two sequence lengths equally near it takes the longer.
func (sv *soloService) neighbours(size, seqLen int) (below, above *cell) {
	best := -1
	for _, c := range sv.cells {
		if !c.settled() {
			continue
		}
		if d := distance(c.SeqLen, seqLen); best < 0 || d < distance(best, seqLen) || d == distance(best, seqLen) && c.SeqLen != best {
			best, below, above = c.SeqLen, nil, nil
		}
		if c.SeqLen != best {
			continue
		}
		if c.Size <= size {
			below = c // they are sorted by size
		}
		if c.Size >= size && above == nil {
			above = c
		}
	}
	return below, above
}

// nearest returns the cell, settled or not, that is nearest in sequence
// length, then in size. There must be one.
func (sv *soloService) nearest(size, seqLen int) *cell {
	return slices.MinFunc(sv.cells, func(a, b *cell) int {
		return cmp.Or(
			cmp.Compare(distance(a.SeqLen, seqLen), distance(b.SeqLen, seqLen)),
			cmp.Compare(distance(a.Size, size), distance(b.Size, size)))
	})
}

// proportion returns what a batch of the cell's shape takes for each unit of
// time that the given one takes, if time grew in proportion to both.
func (c *cell) proportion(size, seqLen int) float64 {
	p := float64(c.Size) / float64(size)
	if seqLen > 0 && c.SeqLen > 0 {
		p *= float64(c.SeqLen) / float64(seqLen)
	}
	return p
}

func distance(a, b int) int { return max(a-b, b-a) }

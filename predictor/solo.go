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
	// MaxServices is twice the number of services that can be served, so that all of them can
	// be replaced at once.
	MaxServices = 128
	// MaxCells limits the cells of one service.
	MaxCells     = 64
	maxOperators = 1 << 16
	// MaxSize limits the batch size.
	MaxSize = 1 << 16
	// MaxSeqLen limits the sequence length.
	MaxSeqLen = 1 << 20
	// MaxTime limits the time of one span.
	MaxTime = time.Hour
)

var (
	// errRange is returned when a service, span, batch size, sequence length or time is outside
	// the limits of the table. Nothing has changed.
	errRange = errors.New("out of range")

	// errDropped is created once, because a scheduler may ask often.
	errDropped = fmt.Errorf("the service was dropped: %w", errRange)

	// errSnapshot is returned when a snapshot is damaged or belongs to another service. Nothing
	// has changed.
	errSnapshot = errors.New("unusable snapshot of isolated latencies")
)

// Solo is the table of isolated latencies: how long the operators of each service take when nothing
// else runs, on all units of the device and on each share of them.
type Solo struct {
	services []soloService
	// now is the end of the run that is being observed.
	now time.Duration

	// units is how many units the device has, and parts has the table of each share, the smallest
	// first. A device of one unit has no shares.
	units int
	parts []shareTable
}

// shareTable is the table of a share.
type shareTable struct {
	share int
	table Solo
}

// Divide gives a table shares of a device of so many units: 1, 2, 4 and so on.
func (t *Solo) Divide(units int) {
	t.units = units
	for share := 1; share < units; share *= 2 {
		p := shareTable{share: share}
		for id, sv := range t.services {
			_ = p.table.Reset(models.ServiceID(id), sv.operators) // as this table has
		}
		t.parts = append(t.parts, p)
	}
}

// On returns the table of a share, that of all units for 0 and for a share without one.
func (t *Solo) On(share int) *Solo {
	for i := range t.parts {
		if t.parts[i].share == share {
			return &t.parts[i].table
		}
	}
	return t
}

// soloService holds the isolated latencies of one service.
type soloService struct {
	// operators is 0 for a dropped service.
	operators int

	// model counts the earlier models with this ID, so that a change of the model is noticed.
	model int

	// cells are sorted by sequence length, then by size.
	cells []*cell

	// cut is the overhead of running part of the model, in nanoseconds: starting and stopping in
	// the middle is not free. parts counts the observations it was learned from.
	cut   float64
	parts int
	// cutAt is when a part of the model last ran.
	cutAt time.Duration

	// asked caches the cells around the last batch that was looked up.
	asked around
}

// NewSolo returns an empty table for services with the given numbers of operators. The ID of a
// service is its index.
func NewSolo(operators ...int) (*Solo, error) {
	t := &Solo{}
	for i, n := range operators {
		if err := t.Reset(models.ServiceID(i), n); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Reset discards what is known about a service and sets its number of operators. The service may be
// dropped, or new if it has the next free ID.
func (t *Solo) Reset(service models.ServiceID, operators int) error {
	if next := len(t.services); service < 0 || int(service) > next || service >= MaxServices {
		return fmt.Errorf("service %d: want 0 to %d, and less than %d: %w", service, next, MaxServices, errRange)
	}
	if operators < 1 || operators > maxOperators {
		return fmt.Errorf("service %d has %d operators: %w", service, operators, errRange)
	}
	if int(service) == len(t.services) {
		t.services = append(t.services, soloService{operators: operators})
	} else {
		t.services[service].replace(operators)
	}
	for i := range t.parts {
		_ = t.parts[i].table.Reset(service, operators) // it has the same services
	}
	return nil
}

// Drop discards a service. Its ID is unknown until Reset gives it to another one. If there is a
// [Predictor], call its Drop instead.
func (t *Solo) Drop(service models.ServiceID) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	sv.replace(0)
	for i := range t.parts {
		_ = t.parts[i].table.Drop(service) // it has the same services
	}
	return nil
}

// replace resets the service for another model.
func (sv *soloService) replace(operators int) {
	*sv = soloService{operators: operators, model: sv.model + 1}
}

// Span returns the isolated latency of a span, or false if nothing is known about the service. It
// interpolates between measured batch sizes. Beyond them it scales in proportion to the nearest
// size, and for an unmeasured sequence length in proportion to the nearest length. On a share of which
// nothing is known a span takes as much longer as that has fewer units.
func (t *Solo) Span(s models.Span) (time.Duration, bool) {
	if on := t.On(s.Share); on != t {
		if took, known := on.Span(s); known {
			return took, true
		}
		share := s.Share
		s.Share = 0
		took, known := t.Span(s)
		return min(took, maxSpan/time.Duration(t.units)) * time.Duration(t.units) / time.Duration(share), known
	}
	sv, err := t.service(s.Service)
	if err != nil || sv.check(s.Start, s.End, s.Size, s.SeqLen) != nil {
		return 0, false
	}
	nanos := sv.span(s.Start, s.End, s.Size, s.SeqLen)
	return duration(nanos), nanos > 0
}

// SetOperators sets the isolated latency of every operator, in nanoseconds, for one batch size and
// sequence length.
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
	// These are measurements, so the cell counts as settled.
	c.Observations = max(c.Observations, settleAfter)
	c.sum()
	return nil
}

// Observe records that a span took the given time with nothing else running. A new batch size or
// sequence length gets a cell, which is used once it has enough observations to tell a cold start
// from normal runs. A service with MaxCells cells updates the nearest one instead, by the ratio of
// the observed to the interpolated time. Without a cell, an estimate that is exact needs none.
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

// check returns an error unless the arguments are within the limits.
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

// maxSpan limits the estimate of a span. No span takes that long, and the sum over a group
// still fits into a Duration.
const maxSpan = time.Duration(1 << 56)

// duration converts nanoseconds and rounds up, so that a known time is never 0.
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
	// settleAfter is the number of observations before a cell is used. Until then it keeps the
	// minimum, because the first runs of a shape also pay for memory and caches. An estimate that
	// is too high could make the scheduler drop every query, and then nothing would correct it.
	settleAfter = 3

	// weight is the weight of one observation in the running estimate.
	weight = 1.0 / 8

	// outlier limits the ratio of an observation to the estimate. A larger ratio counts as this
	// one.
	outlier = 2.0

	// minNanos is the least time of an operator. It keeps every time positive, so that times can
	// be scaled.
	minNanos = 1.0

	// faster is the ratio below which an observation cannot be noise: interference makes a span
	// slower, never that much faster. The estimate then moves halfway immediately, because one
	// that is too high drops queries without need.
	faster = 2.0 / 3

	// maxNanos limits the time of an operator.
	maxNanos = float64(MaxTime)

	// An estimate that keeps its own subject from running expires after expireAfter. This concerns
	// the time of a batch size that dynamic batching avoids, and the cost of cutting while nothing
	// is cut. If a run takes long, the estimate is kept for expireRuns times that, so that trying
	// a size again costs little even if it is as slow as it seemed.
	expireAfter = 4 * time.Second
	expireRuns  = 8

	// hopeful sets an expired time to this fraction of what a smaller size implies: a little less
	// than proportional, which is enough for dynamic batching to try it.
	hopeful = 0.99
)

// cell holds the isolated latency, in nanoseconds, of every operator of a service for one batch
// size and sequence length. sums[i] is the sum of Nanos[:i], so that the time of any span is a
// difference.
type cell struct {
	cellSnapshot
	sums []float64
	// at is when the cell was last observed.
	at time.Duration
}

func newCell(size, seqLen, operators int) *cell {
	k := cellSnapshot{Size: size, SeqLen: seqLen, Nanos: make([]float64, operators)}
	return &cell{cellSnapshot: k, sums: make([]float64, operators+1)}
}

// settled reports whether the cell has enough observations to be used.
func (c *cell) settled() bool { return c.Observations >= settleAfter }

// span returns the time of operators [start, end). It is at least minNanos, even where the
// difference of large sums loses it.
func (c *cell) span(start, end int) float64 {
	return max(c.sums[end]-c.sums[start], minNanos)
}

func (c *cell) sum() {
	for i, n := range c.Nanos {
		c.sums[i+1] = c.sums[i] + n
	}
}

// observe updates the time of a span towards the observed one, and scales its operators equally. If
// the span is only a part of the model, the error may be due to its operators or to the cut. The
// operators get a share of it according to their fraction of the model, and the cut gets the rest.
// Observing parts of different lengths then separates the two. The first observations of parts have
// more weight for the cut, which starts without a measurement.
func (sv *soloService) observe(now time.Duration, c *cell, start, end int, took float64) {
	if !sv.divides(start, end) && now-sv.cutAt > expireAfter {
		// The cost of cutting has expired.
		sv.cut, sv.parts = 0, 0
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
		// The old time has expired, so the observation replaces it.
	case ratio < 1 && sv.valid(c) < 1:
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

// withCut adds the cost of cutting to the time of operators if they are only a part of the model.
func (sv *soloService) withCut(nanos float64, start, end int) float64 {
	if sv.divides(start, end) {
		nanos += sv.cut
	}
	return nanos
}

// divides reports whether operators [start, end) are only a part of the model.
func (sv *soloService) divides(start, end int) bool { return end-start < sv.operators }

// scale multiplies the times of operators by ratio, within their limits.
func (c *cell) scale(start, end int, ratio float64) {
	for i := start; i < end; i++ {
		c.Nanos[i] = min(max(c.Nanos[i]*ratio, minNanos), maxNanos)
	}
	c.sum()
}

// valid returns the fraction of a cell's time that still counts, normally 1. The time expires
// if the cell has not run for a while and a smaller size of the same sequence length has. It is
// then reduced to a little less than proportional to the smaller size. A size that seems slow
// does not run, so otherwise nothing would correct its time.
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

// seed returns a new cell from its first observation. The proportions of the operators come from
// other cells, and without any all operators are equal.
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

// find returns the index of the cell with this size and sequence length, or where it belongs.
func (sv *soloService) find(size, seqLen int) (int, bool) {
	at := sort.Search(len(sv.cells), func(i int) bool {
		c := sv.cells[i]
		return c.SeqLen > seqLen || c.SeqLen == seqLen && c.Size >= size
	})
	return at, at < len(sv.cells) && sv.cells[at].SeqLen == seqLen && sv.cells[at].Size == size
}

// cell returns the cell with exactly this size and sequence length, or nil.
func (sv *soloService) cell(size, seqLen int) *cell {
	if i, ok := sv.find(size, seqLen); ok {
		return sv.cells[i]
	}
	return nil
}

// insert adds a cell and invalidates the cache.
func (sv *soloService) insert(c *cell) *cell {
	sv.asked = around{}
	i, _ := sv.find(c.Size, c.SeqLen)
	sv.cells = slices.Insert(sv.cells, i, c)
	return c
}

// around holds the cells from which the time of a batch is interpolated. Both are the same cell
// if it matches exactly, and one is nil if there is no cell on that side.
type around struct {
	size, seqLen int
	below, above *cell
	// low and high are the fractions of their times that count, from valid.
	low, high float64
}

// around returns the cells around a batch. It caches the last result, because a scheduler asks
// about one batch many times.
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

// span returns the time of a span in nanoseconds, or 0 if no cell is settled.
func (sv *soloService) span(start, end, size, seqLen int) float64 {
	nanos := sv.estimate(start, end, size, seqLen)
	if nanos == 0 {
		return 0
	}
	return sv.withCut(nanos, start, end)
}

// estimate returns the time of operators [start, end) in nanoseconds without the cost of
// cutting, or 0 if no cell is settled.
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

// neighbours returns the settled cells that are nearest in size, at most and at least the given
// size, among those of the nearest sequence length. Either is nil if there is none. Of two
// equally near sequence lengths it uses the longer.
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
			// Cells are sorted by size, so the last one is the nearest.
			below = c
		}
		if c.Size >= size && above == nil {
			above = c
		}
	}
	return below, above
}

// nearest returns the cell, settled or not, that is nearest in sequence length, then in size. There
// must be at least one.
func (sv *soloService) nearest(size, seqLen int) *cell {
	return slices.MinFunc(sv.cells, func(a, b *cell) int {
		return cmp.Or(
			cmp.Compare(distance(a.SeqLen, seqLen), distance(b.SeqLen, seqLen)),
			cmp.Compare(distance(a.Size, size), distance(b.Size, size)))
	})
}

// proportion returns the ratio of the cell's time to that of the given batch, assuming that time is
// proportional to batch size and sequence length.
func (c *cell) proportion(size, seqLen int) float64 {
	p := float64(c.Size) / float64(size)
	if seqLen > 0 && c.SeqLen > 0 {
		p *= float64(c.SeqLen) / float64(seqLen)
	}
	return p
}

func distance(a, b int) int { return max(a-b, b-a) }

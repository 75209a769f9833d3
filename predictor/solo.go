package predictor

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Limits of a table.
const (
	MaxServices  = 64 // that a table may come to have
	MaxCells     = 64 // of one service
	MaxOperators = 1 << 16
	MaxSize      = 1 << 16   // batch size
	MaxSeqLen    = 1 << 20   // sequence length
	MaxTime      = time.Hour // of one span
)

// Solo is the table of solo times.
type Solo struct {
	services []soloService
}

type soloService struct {
	operators int     // 0 if there is no such service any more
	model     int     // how many models had this ID before the one that has it
	cells     []*cell // by sequence length, then size
	asked     around  // of the batch asked about last
}

// NewSolo returns an empty table for services with the given numbers of
// operators. A service's ID is its position.
func NewSolo(operators ...int) (*Solo, error) {
	t := &Solo{services: make([]soloService, len(operators))}
	for i, n := range operators {
		if n < 1 || n > MaxOperators {
			return nil, fmt.Errorf("service %d has %d operators: %w", i, n, ErrRange)
		}
		t.services[i].operators = n
	}
	return t, nil
}

// Reset forgets what is known of a service, whose model has the given number of
// operators from now on. It may be a service that was dropped, or one more than
// there were: its ID is then the next one.
func (t *Solo) Reset(service models.ServiceID, operators int) error {
	if next := len(t.services); service < 0 || int(service) > next || service >= MaxServices {
		return fmt.Errorf("service %d: want 0 to %d, and less than %d: %w", service, next, MaxServices, ErrRange)
	}
	if operators < 1 || operators > MaxOperators {
		return fmt.Errorf("service %d has %d operators: %w", service, operators, ErrRange)
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
	sv, err := t.service(s.Service)
	if err != nil || sv.check(s.Start, s.End, s.Size, s.SeqLen) != nil {
		return 0, false
	}
	nanos := sv.estimate(s.Start, s.End, s.Size, s.SeqLen)
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
		return fmt.Errorf("%d operator times for %d operators: %w", len(nanos), sv.operators, ErrRange)
	}
	for i, n := range nanos {
		if n < 0 || n > int64(MaxTime) {
			return fmt.Errorf("operator %d takes %d ns: %w", i, n, ErrRange)
		}
	}
	sv.asked = around{}
	c := sv.cell(size, seqLen)
	if c == nil {
		if len(sv.cells) >= MaxCells {
			return ErrFull
		}
		c = sv.insert(newCell(size, seqLen, sv.operators))
	}
	for i, n := range nanos {
		c.nanos[i] = max(float64(n), minNanos)
	}
	c.observations = max(c.observations, settleAfter)
	c.sum()
	return nil
}

// Observe takes in what a span took that ran alone. The first observations of
// a batch size and sequence length count once there are enough to tell a cold
// start from the rule. A service that has all its cells learns from further
// ones by their nearest cell.
func (t *Solo) Observe(service models.ServiceID, start, end, size, seqLen int, took time.Duration) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	if err := sv.check(start, end, size, seqLen); err != nil {
		return err
	}
	if took <= 0 || took > MaxTime {
		return fmt.Errorf("span took %v: %w", took, ErrRange)
	}
	sv.asked = around{}
	c := sv.cell(size, seqLen)
	switch {
	case c != nil:
		c.observe(start, end, float64(took))
	case len(sv.cells) < MaxCells:
		sv.insert(sv.seed(start, end, size, seqLen, float64(took)))
	default:
		c := sv.nearest(size, seqLen)
		c.observe(start, end, float64(took)*c.proportion(size, seqLen))
	}
	return nil
}

func (t *Solo) service(id models.ServiceID) (*soloService, error) {
	if id < 0 || int(id) >= len(t.services) {
		return nil, fmt.Errorf("service %d of %d: %w", id, len(t.services), ErrRange)
	}
	if t.services[id].operators == 0 {
		return nil, errDropped
	}
	return &t.services[id], nil
}

func (sv *soloService) check(start, end, size, seqLen int) error {
	switch {
	case start < 0 || start >= end || end > sv.operators:
		return fmt.Errorf("span [%d,%d) of %d operators: %w", start, end, sv.operators, ErrRange)
	case size < 1 || size > MaxSize:
		return fmt.Errorf("batch size %d: %w", size, ErrRange)
	case seqLen < 0 || seqLen > MaxSeqLen:
		return fmt.Errorf("sequence length %d: %w", seqLen, ErrRange)
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

// Costs returns the settled solo times of a service, for training: what each
// operator takes alone, by sequence length, then size. Of work it says
// nothing.
func (t *Solo) Costs(service models.ServiceID) ([]CostCell, error) {
	sv, err := t.service(service)
	if err != nil {
		return nil, err
	}
	var cells []CostCell
	for _, c := range sv.cells {
		if !c.settled() {
			continue
		}
		micros := make([]float64, len(c.nanos))
		for i, n := range c.nanos {
			micros[i] = n / 1e3
		}
		cells = append(cells, CostCell{Size: c.size, SeqLen: c.seqLen, Micros: micros})
	}
	return cells, nil
}

package predictor

import (
	"fmt"
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Snapshot is what a table knows of one service, in a form that can be kept.
// It names no service: that it belongs to the same model on the same device
// is for the caller to know.
type Snapshot struct {
	Operators int    `json:"operators"`
	Cells     []Cell `json:"cells"`
}

// Cell is the solo times of one batch size and sequence length.
type Cell struct {
	Size         int       `json:"size"`
	SeqLen       int       `json:"seq_len"`
	Observations int       `json:"observations"`
	Nanos        []float64 `json:"nanos"` // of each operator
}

// Snapshot copies what is known of a service.
func (t *Solo) Snapshot(service models.ServiceID) (Snapshot, error) {
	sv, err := t.service(service)
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Operators: sv.operators}
	for _, c := range sv.cells {
		s.Cells = append(s.Cells, Cell{c.size, c.seqLen, c.observations, slices.Clone(c.nanos)})
	}
	return s, nil
}

// Restore replaces what is known of a service. A snapshot that does not fit
// or holds an impossible number is refused with ErrSnapshot.
func (t *Solo) Restore(service models.ServiceID, s Snapshot) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	if s.Operators != sv.operators {
		return fmt.Errorf("%w: of %d operators, the service has %d", ErrSnapshot, s.Operators, sv.operators)
	}
	if len(s.Cells) > MaxCells {
		return fmt.Errorf("%w: %d cells", ErrSnapshot, len(s.Cells))
	}
	restored := soloService{operators: sv.operators, model: sv.model}
	for i := range s.Cells {
		if err := restored.restore(&s.Cells[i]); err != nil {
			return fmt.Errorf("%w: cell %d: %v", ErrSnapshot, i, err)
		}
	}
	*sv = restored
	return nil
}

func (sv *soloService) restore(k *Cell) error {
	if err := sv.check(0, sv.operators, k.Size, k.SeqLen); err != nil {
		return err
	}
	if k.Observations < 1 {
		return fmt.Errorf("%d observations", k.Observations)
	}
	if len(k.Nanos) != sv.operators {
		return fmt.Errorf("%d operator times", len(k.Nanos))
	}
	if sv.cell(k.Size, k.SeqLen) != nil {
		return fmt.Errorf("size %d, sequence length %d occurs twice", k.Size, k.SeqLen)
	}
	c := newCell(k.Size, k.SeqLen, sv.operators)
	for i, n := range k.Nanos {
		if math.IsNaN(n) || n < minNanos || n > maxNanos {
			return fmt.Errorf("operator %d takes %v ns", i, n)
		}
		c.nanos[i] = n
	}
	c.observations = k.Observations
	c.sum()
	sv.insert(c)
	return nil
}

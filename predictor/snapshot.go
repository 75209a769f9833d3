package predictor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Snapshot is what a table knows of one service, in a form that can be kept.
// It names no service: that it belongs to the same model on the same device
// is for the caller to know.
type Snapshot struct {
	Operators int            `json:"operators"`
	Cells     []cellSnapshot `json:"cells"`
	Cut       float64        `json:"cut,omitempty"` // what a part of the model takes beside its operators, in nanoseconds
}

// cellSnapshot holds the solo time of each operator for one batch size and
// sequence length.
type cellSnapshot struct {
	Size         int       `json:"size"`
	SeqLen       int       `json:"seq_len"`
	Observations int       `json:"observations"`
	Nanos        []float64 `json:"nanos"`
}

// Snapshot copies what is known of a service.
func (t *Solo) Snapshot(service models.ServiceID) (Snapshot, error) {
	sv, err := t.service(service)
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Operators: sv.operators, Cut: sv.cut}
	for _, c := range sv.cells {
		kept := c.cellSnapshot
		kept.Nanos = slices.Clone(c.Nanos)
		s.Cells = append(s.Cells, kept)
	}
	return s, nil
}

// Restore replaces what is known of a service. A snapshot that does not fit
// or holds an impossible number is refused with errSnapshot.
func (t *Solo) Restore(service models.ServiceID, s Snapshot) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	if s.Operators != sv.operators {
		return fmt.Errorf("%w: of %d operators, the service has %d", errSnapshot, s.Operators, sv.operators)
	}
	if len(s.Cells) > MaxCells {
		return fmt.Errorf("%w: %d cells", errSnapshot, len(s.Cells))
	}
	if !(s.Cut >= 0 && s.Cut <= maxNanos) {
		return fmt.Errorf("%w: a cut of %v ns", errSnapshot, s.Cut)
	}
	restored := soloService{operators: sv.operators, model: sv.model, cut: s.Cut}
	for i := range s.Cells {
		if err := restored.restore(&s.Cells[i]); err != nil {
			return fmt.Errorf("%w: cell %d: %v", errSnapshot, i, err)
		}
	}
	*sv = restored
	return nil
}

func (sv *soloService) restore(k *cellSnapshot) error {
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
	if i := slices.IndexFunc(k.Nanos, func(n float64) bool { return !(n >= minNanos && n <= maxNanos) }); i >= 0 {
		return fmt.Errorf("operator %d takes %v ns", i, k.Nanos[i])
	}
	c := newCell(k.Size, k.SeqLen, sv.operators)
	copy(c.Nanos, k.Nanos)
	c.Observations = k.Observations
	c.sum()
	sv.insert(c)
	return nil
}

// unknownError stands for the errors of runs that a snapshot does not hold.
const unknownError = -1

// CalibrationSnapshot is what was learned of the quality of predictions, in a
// form that can be kept. It names services by their ID: that they are the same
// services is for the caller to know.
type CalibrationSnapshot struct {
	Predictor string           `json:"predictor,omitempty"` // File.Identity of the network, "" for none
	Sources   []windowSnapshot `json:"sources"`
	Shapes    []windowSnapshot `json:"shapes,omitempty"`
}

// windowSnapshot is what was learned of all predictions of a source, which has a level,
// or of groups of some services that it predicts.
type windowSnapshot struct {
	Source   string             `json:"source"`
	Services []models.ServiceID `json:"services,omitempty"`
	Runs     uint64             `json:"runs,omitempty"`
	Level    float64            `json:"level,omitempty"` // measured/predicted of the device lately
	Ratios   []float64          `json:"ratios"`          // measured/predicted at that level, the oldest first
}

func (c *calibration) snapshot() CalibrationSnapshot {
	var kept CalibrationSnapshot
	for i := range c.speeds {
		s := &c.speeds[i]
		kept.Sources = append(kept.Sources, windowSnapshot{Source: s.source.String(), Level: s.level, Ratios: s.all.ratios()})
	}
	for key, s := range c.shapes {
		if !c.stale(s) {
			kept.Shapes = append(kept.Shapes, windowSnapshot{Source: key.source.String(), Services: key.members(), Runs: s.runs, Ratios: s.own.ratios()})
		}
	}
	slices.SortFunc(kept.Shapes, func(a, b windowSnapshot) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), slices.Compare(a.Services, b.Services))
	})
	return kept
}

// restore returns what a snapshot holds. Without network it leaves out what
// was learned of one; start is what is known of that from elsewhere.
func restore(kept CalibrationSnapshot, network bool, start Quantiles) (*calibration, error) {
	c := newCalibration()
	c.restart(sourceNetwork, start)
	if len(kept.Shapes) > maxShapes {
		return nil, fmt.Errorf("%w: %d shapes; the limit is %d", errSnapshot, len(kept.Shapes), maxShapes)
	}
	seen := map[shapeKey]bool{}
	for i, k := range slices.Concat(kept.Sources, kept.Shapes) {
		key, w, err := k.restore(i < len(kept.Sources))
		if err == nil && seen[key] {
			err = errors.New("it occurs twice")
		}
		if err != nil {
			return nil, fmt.Errorf("%w: source %q, services %v: %w", errSnapshot, k.Source, k.Services, err)
		}
		seen[key] = true
		switch {
		case key.source == sourceNetwork && !network:
		case len(k.Services) == 0:
			c.speeds[key.source].level, c.speeds[key.source].all = k.Level, w
		default:
			c.shapes[key] = &shape{runs: k.Runs, own: w}
		}
	}
	return c, nil
}

// restore returns the window of a source, or of a shape.
func (k *windowSnapshot) restore(whole bool) (key shapeKey, w window, err error) {
	source := source(slices.Index(sourceNames[:], k.Source))
	key.source = source
	for i, id := range k.Services {
		if id < 0 || id >= MaxServices || i > 0 && id <= k.Services[i-1] {
			return key, w, errors.New("services out of order")
		}
		key.add(id)
	}
	switch {
	case source >= sources:
		return key, w, errors.New("no such source")
	case len(k.Ratios) > windowRuns:
		return key, w, fmt.Errorf("%d ratios; the limit is %d", len(k.Ratios), windowRuns)
	case whole && (len(k.Services) > 0 || !(k.Level >= 1/maxLevel && k.Level <= maxLevel)):
		return key, w, fmt.Errorf("a level of %v", k.Level)
	case !whole && (len(k.Services) == 0 || (len(k.Services) == 1) != (source == sourceSolo)):
		return key, w, fmt.Errorf("%d services", len(k.Services))
	}
	w.reset()
	for _, v := range k.Ratios {
		// A level and an outlier may take a ratio beyond what one run can be.
		if !(v >= 1/(maxRatio*maxLevel) && v <= maxRatio*maxLevel) {
			return key, w, fmt.Errorf("a ratio of %v", v)
		}
		w.add(run{ratio: v, rawError: unknownError, error: unknownError})
	}
	return key, w, nil
}

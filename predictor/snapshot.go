package predictor

import (
	"cmp"
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
	s := Snapshot{Operators: sv.operators}
	for _, c := range sv.cells {
		kept := c.cellSnapshot
		kept.Nanos = slices.Clone(c.Nanos)
		s.Cells = append(s.Cells, kept)
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
	Sources   []sourceSnapshot `json:"sources"`
	Shapes    []shapeSnapshot  `json:"shapes,omitempty"`
}

// sourceSnapshot is what was learned of all predictions of a source.
type sourceSnapshot struct {
	Source string    `json:"source"`
	Level  float64   `json:"level"`  // measured/predicted of the device lately
	Ratios []float64 `json:"ratios"` // measured/predicted at that level, the oldest first
}

// shapeSnapshot is what was learned of groups of some services.
type shapeSnapshot struct {
	Source   string             `json:"source"`
	Services []models.ServiceID `json:"services"`
	Runs     uint64             `json:"runs"`
	Ratios   []float64          `json:"ratios"`
}

func (c *calibration) snapshot() CalibrationSnapshot {
	var kept CalibrationSnapshot
	for i := range c.speeds {
		s := &c.speeds[i]
		kept.Sources = append(kept.Sources, sourceSnapshot{s.source.String(), s.level, s.all.ratios()})
	}
	for key, s := range c.shapes {
		if !c.stale(s) {
			kept.Shapes = append(kept.Shapes, shapeSnapshot{key.source.String(), key.members(), s.runs, s.own.ratios()})
		}
	}
	slices.SortFunc(kept.Shapes, func(a, b shapeSnapshot) int {
		return cmp.Or(cmp.Compare(a.Source, b.Source), slices.Compare(a.Services, b.Services))
	})
	return kept
}

// restore returns what a snapshot holds. Without network it leaves out what
// was learned of one; start is what is known of that from elsewhere.
func restore(kept CalibrationSnapshot, network bool, start Quantiles) (*calibration, error) {
	c := newCalibration()
	c.restart(sourceNetwork, start)
	seen := map[string]bool{}
	for i := range kept.Sources {
		k := &kept.Sources[i]
		if seen[k.Source] {
			return nil, fmt.Errorf("%w: source %q occurs twice", ErrSnapshot, k.Source)
		}
		seen[k.Source] = true
		if err := c.restoreSource(k, network); err != nil {
			return nil, fmt.Errorf("%w: source %q: %w", ErrSnapshot, k.Source, err)
		}
	}
	if len(kept.Shapes) > MaxShapes {
		return nil, fmt.Errorf("%w: %d shapes; the limit is %d", ErrSnapshot, len(kept.Shapes), MaxShapes)
	}
	for i := range kept.Shapes {
		if err := c.restoreShape(&kept.Shapes[i], network); err != nil {
			return nil, fmt.Errorf("%w: shape %d: %w", ErrSnapshot, i, err)
		}
	}
	return c, nil
}

func sourceOf(name string) (source, error) {
	i := slices.Index(sourceNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("unknown source %.40q", name)
	}
	return source(i), nil
}

func (c *calibration) restoreSource(k *sourceSnapshot, network bool) error {
	source, err := sourceOf(k.Source)
	if err != nil {
		return err
	}
	if !(k.Level >= 1/maxLevel && k.Level <= maxLevel) {
		return fmt.Errorf("a level of %v", k.Level)
	}
	var w window
	if err := w.restore(k.Ratios); err != nil {
		return err
	}
	if source == sourceNetwork && !network {
		return nil
	}
	c.speeds[source].level, c.speeds[source].all = k.Level, w
	return nil
}

func (c *calibration) restoreShape(k *shapeSnapshot, network bool) error {
	source, err := sourceOf(k.Source)
	if err != nil {
		return err
	}
	key := shapeKey{source: source}
	for i, id := range k.Services {
		if id < 0 || id >= maxShapeServices || i > 0 && id <= k.Services[i-1] {
			return fmt.Errorf("services %v", k.Services)
		}
		key.services |= 1 << id
	}
	if key.services == 0 || c.shapes[key] != nil || (len(k.Services) == 1) != (source == sourceSolo) {
		return fmt.Errorf("services %v of source %s", k.Services, source)
	}
	s := &shape{key: key, runs: k.Runs}
	if err := s.own.restore(k.Ratios); err != nil {
		return err
	}
	if source != sourceNetwork || network {
		c.shapes[key] = s
	}
	return nil
}

func (w *window) restore(ratios []float64) error {
	if len(ratios) > windowRuns {
		return fmt.Errorf("%d ratios; the limit is %d", len(ratios), windowRuns)
	}
	w.reset()
	for _, v := range ratios {
		// A level and an outlier may take a ratio beyond what one run can be.
		if !(v >= 1/(maxRatio*maxLevel) && v <= maxRatio*maxLevel) {
			return fmt.Errorf("a ratio of %v", v)
		}
		w.add(run{ratio: v, rawError: unknownError, error: unknownError})
	}
	return nil
}

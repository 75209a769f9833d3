package predictor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Snapshot holds what a table knows about one service, for the state file. It does not identify the
// service: the caller must make sure that model and device are the same when it restores one.
type Snapshot struct {
	Operators int            `json:"operators"`
	Cells     []cellSnapshot `json:"cells"`
	// Cut is the overhead in nanoseconds of running part of the model, in addition to the time
	// of its operators.
	Cut float64 `json:"cut,omitempty"`
	// Shares holds the same for each share of the device, of which Share is one.
	Share  int        `json:"share,omitempty"`
	Shares []Snapshot `json:"shares,omitempty"`
}

// cellSnapshot holds the isolated latency of each operator for one batch size and sequence length.
type cellSnapshot struct {
	Size         int       `json:"size"`
	SeqLen       int       `json:"seq_len"`
	Observations int       `json:"observations"`
	Nanos        []float64 `json:"nanos"`
}

// Snapshot returns a copy of what is known about a service.
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
	for i := range t.parts {
		of, err := t.parts[i].table.Snapshot(service)
		if err != nil {
			return Snapshot{}, err
		}
		of.Share = t.parts[i].share
		s.Shares = append(s.Shares, of)
	}
	return s, nil
}

// Restore replaces what is known about a service. If the snapshot does not fit or holds an
// impossible number, Restore returns errSnapshot and changes nothing but shares that fit.
func (t *Solo) Restore(service models.ServiceID, s Snapshot) error {
	sv, err := t.service(service)
	if err != nil {
		return err
	}
	for i := range s.Shares {
		if of := t.On(s.Shares[i].Share); of != t {
			if err := of.Restore(service, s.Shares[i]); err != nil {
				return err
			}
		}
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

// restore adds a cell from a snapshot, after checking it.
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

// unknownError marks the errors of restored runs, which a snapshot does not hold.
const unknownError = -1

// CalibrationSnapshot holds a calibration, for the state file. It refers to services by their ID:
// the caller must make sure that these are the same when it restores one.
type CalibrationSnapshot struct {
	// Predictor is the File.Identity of the network, or "" for none.
	Predictor string           `json:"predictor,omitempty"`
	Sources   []windowSnapshot `json:"sources"`
	Shapes    []windowSnapshot `json:"shapes,omitempty"`
}

// windowSnapshot holds what was learned about all predictions of a source, then with a level, or
// about one of its shapes, then with services.
type windowSnapshot struct {
	Source   string             `json:"source"`
	Services []models.ServiceID `json:"services,omitempty"`
	Runs     uint64             `json:"runs,omitempty"`
	// Level is the current measured/predicted of the device.
	Level float64 `json:"level,omitempty"`
	// Ratios holds measured/predicted at that level, the oldest first.
	Ratios []float64 `json:"ratios"`
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

// restore returns the calibration in a snapshot. If network is false, it omits what the snapshot
// holds about the network; start holds the network's error quantiles from its test.
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

// restore returns the window of a source, if whole is set, or of a shape.
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
		// Levels and outliers may take a ratio beyond the limit for a single run.
		if !(v >= 1/(maxRatio*maxLevel) && v <= maxRatio*maxLevel) {
			return key, w, fmt.Errorf("a ratio of %v", v)
		}
		w.add(run{ratio: v, rawError: unknownError, error: unknownError})
	}
	return key, w, nil
}

package training

import (
	"fmt"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// Merge puts datasets of one device together. Models are the same if they
// have the same name; with the same name but different hashes they are
// refused with ErrMixed. The models of the result are sorted by name and the
// spans of each row follow that order, so that it depends on the order of the
// datasets only in the order of the rows. The rows are copies.
func Merge(datasets ...*Dataset) (*Dataset, error) {
	merged := &Dataset{}
	byName := map[string]Model{}
	rows := 0
	for _, d := range datasets {
		if d.Device != "" && merged.Device != "" && d.Device != merged.Device {
			return nil, fmt.Errorf("%w: of the devices %q and %q", ErrMixed, merged.Device, d.Device)
		}
		merged.Device = max(merged.Device, d.Device)
		for _, m := range d.Models {
			same, err := unify(byName[m.Name], m)
			if err != nil {
				return nil, err
			}
			byName[m.Name] = same
		}
		rows += len(d.Rows)
	}
	if rows > MaxRows || len(byName) > MaxModels {
		return nil, fmt.Errorf("%w: %d rows of %d models, the limits are %d and %d", ErrLimit, rows, len(byName), MaxRows, MaxModels)
	}
	merged.Models = sortedModels(byName)
	merged.Rows = make([]Row, 0, rows)
	for _, d := range datasets {
		merged.append(d)
	}
	return merged, nil
}

// unify returns what two datasets know of a model together. Where a hash is
// known, so is the number of operators; else it is the largest end seen.
func unify(a, b Model) (Model, error) {
	if a.Hash == "" {
		a, b = b, a
	}
	switch {
	case a.Hash != "" && b.Hash != "" && a.Hash != b.Hash:
		return a, fmt.Errorf("%w: two files are called %s (%.12s and %.12s); rename one of the models, or leave out what was measured of one", ErrMixed, a.Name, a.Hash, b.Hash)
	case a.Hash != "" && b.Hash != "" && a.Operators != b.Operators:
		return a, fmt.Errorf("%w: %s is cut into %d and into %d operators; use the measurements of one cut", ErrMixed, a.Name, a.Operators, b.Operators)
	case a.Hash != "" && b.Operators > a.Operators:
		return a, fmt.Errorf("%w: %s has %d operators, but a span of it ends at %d", ErrMixed, a.Name, a.Operators, b.Operators)
	case b.Name != "":
		a.Operators = max(a.Operators, b.Operators)
	}
	return a, nil
}

func sortedModels(byName map[string]Model) []Model {
	list := make([]Model, 0, len(byName))
	for _, m := range byName {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// append adds the rows of d, whose models d all has.
func (d *Dataset) append(from *Dataset) {
	position := make([]models.ServiceID, len(from.Models))
	for i, m := range from.Models {
		position[i] = models.ServiceID(d.Model(m.Name))
	}
	for _, r := range from.Rows {
		r.Group.Spans = slices.Clone(r.Group.Spans)
		for i := range r.Group.Spans {
			r.Group.Spans[i].Service = position[r.Group.Spans[i].Service]
		}
		sortSpans(r.Group.Spans)
		d.Rows = append(d.Rows, r)
	}
}

// Model returns the position of the model of this name, -1 if there is none.
func (d *Dataset) Model(name string) int {
	i, found := slices.BinarySearchFunc(d.Models, name, func(m Model, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return -1
	}
	return i
}

package training

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/models"
)

// Limits of a dataset.
const (
	maxRows   = 1 << 20
	MaxModels = 256
	// MaxSpans limits the spans of a group.
	MaxSpans = 16
	// MaxOperators limits the operators of a model.
	MaxOperators = 1 << 20
	// maxSize limits a batch size.
	maxSize   = 1 << 20
	maxSeqLen = 1 << 24
	// MaxMicros limits the time of a run to about eleven days.
	MaxMicros = 1e12

	maxNameBytes = 256
)

// Dataset holds operator groups measured on one device. Device is "" if it is unknown.
type Dataset struct {
	Device string

	// Models are sorted by name. The spans of a row refer to a model by its index, as their
	// Service.
	Models []Model
	Rows   []Row
}

// Model is a model in a dataset. Hash is that of models.Model, or "" if it is unknown, as in
// imported data.
type Model struct {
	Name      string `json:"name"`
	Hash      string `json:"hash,omitempty"`
	Operators int    `json:"operators"`
}

// Row is one measured group. Its spans are not empty and are in the order of the dataset's
// models. Times are in microseconds.
type Row struct {
	Group models.Group

	// Repeats is the number of runs, or 0 if it is unknown. Median, Mean and the standard
	// deviation Std summarize these runs.
	Repeats int
	Median  float64
	Mean    float64
	Std     float64

	// Device is the median by the device's own clock, or 0 if it has none, as on a CPU.
	Device float64
}

// Check returns the first fault of a dataset: models that are unnamed or out of order, or rows
// that are impossible with these models.
func (d *Dataset) Check() error {
	if err := checkModels(d.Models); err != nil {
		return err
	}
	if len(d.Rows) > maxRows {
		return fmt.Errorf("%w: %d rows, the limit is %d", ErrLimit, len(d.Rows), maxRows)
	}
	for i := range d.Rows {
		if err := d.Rows[i].check(d.Models); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

// checkModels checks that models are valid and sorted, without duplicates.
func checkModels(list []Model) error {
	if len(list) > MaxModels {
		return fmt.Errorf("%w: %d models, the limit is %d", ErrLimit, len(list), MaxModels)
	}
	for i, m := range list {
		if err := checkName(m.Name); err != nil {
			return fmt.Errorf("%w: %w", ErrFormat, err)
		}
		if m.Operators < 1 || m.Operators > MaxOperators {
			return fmt.Errorf("%w: model %s has %d operators", ErrFormat, m.Name, m.Operators)
		}
		if i > 0 && strings.Compare(list[i-1].Name, m.Name) >= 0 {
			return fmt.Errorf("%w: model %s stands behind %s", ErrFormat, m.Name, list[i-1].Name)
		}
	}
	return nil
}

// checkName rejects names that would not survive being written to a file and read again.
func checkName(name string) error {
	switch {
	case name == "" || strings.TrimSpace(name) != name:
		return fmt.Errorf("%q is no name of a model", name)
	case len(name) > maxNameBytes:
		return fmt.Errorf("a model's name of %d bytes, the limit is %d", len(name), maxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("the model's name %q has characters that cannot be printed", name)
	}
	return nil
}

func (r *Row) check(list []Model) error {
	if err := checkGroup(r.Group, list); err != nil {
		return err
	}
	if r.Repeats < 0 {
		return fmt.Errorf("%w: run %d times", ErrFormat, r.Repeats)
	}
	// Or returns the first error.
	return cmp.Or(checkMicros(r.Median, false), checkMicros(r.Mean, false), checkMicros(r.Device, true), checkMicros(r.Std, true))
}

// checkGroup checks that the spans of a group exist in these models and are in their order.
func checkGroup(g models.Group, list []Model) error {
	if len(g.Spans) == 0 || len(g.Spans) > MaxSpans {
		return fmt.Errorf("%w: a group of %d spans, not of 1 to %d", ErrFormat, len(g.Spans), MaxSpans)
	}
	for i, s := range g.Spans {
		if s.Service < 0 || int(s.Service) >= len(list) {
			return fmt.Errorf("%w: a span of model %d of %d", ErrFormat, s.Service, len(list))
		}
		m := list[s.Service]
		switch {
		case s.Start < 0 || s.Start >= s.End || s.End > m.Operators:
			return fmt.Errorf("%w: span [%d, %d) of %s, which has %d operators", ErrFormat, s.Start, s.End, m.Name, m.Operators)
		case s.Size < 1 || s.Size > maxSize || s.SeqLen < 0 || s.SeqLen > maxSeqLen:
			return fmt.Errorf("%w: span of %s with batch size %d, sequence length %d", ErrFormat, m.Name, s.Size, s.SeqLen)
		case i > 0 && g.Spans[i-1].Service >= s.Service:
			return fmt.Errorf("%w: the span of %s is not in the order of the models", ErrFormat, m.Name)
		}
	}
	return nil
}

// checkMicros rejects times that no run can take. Only a standard deviation may be zero.
func checkMicros(v float64, zero bool) error {
	if !(v >= 0 && v <= MaxMicros) || v == 0 && !zero {
		return fmt.Errorf("%w: a time of %v microseconds", ErrFormat, v)
	}
	return nil
}

// Merge combines datasets of one device. Models with the same name are the same model; if their
// hashes differ, Merge returns errMixed. It sorts the models by name and each row's spans in
// that order, so that only the order of the rows depends on the order of the datasets. The rows
// are copies.
func Merge(datasets ...*Dataset) (*Dataset, error) {
	merged := &Dataset{}
	byName := map[string]Model{}
	rows := 0
	for _, d := range datasets {
		if d.Device != "" && merged.Device != "" && d.Device != merged.Device {
			return nil, fmt.Errorf("%w: of the devices %q and %q", errMixed, merged.Device, d.Device)
		}
		// Either device may be empty, and otherwise they are equal.
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
	if rows > maxRows || len(byName) > MaxModels {
		return nil, fmt.Errorf("%w: %d rows of %d models, the limits are %d and %d", ErrLimit, rows, len(byName), maxRows, MaxModels)
	}
	merged.Models = slices.SortedFunc(maps.Values(byName), func(a, b Model) int { return strings.Compare(a.Name, b.Name) })
	merged.Rows = make([]Row, 0, rows)
	for _, d := range datasets {
		merged.append(d)
	}
	return merged, nil
}

// unify returns the combined knowledge about a model in two datasets. With a hash, the number of
// operators is known. Without one, it is only the largest end of a span.
func unify(a, b Model) (Model, error) {
	if a.Hash == "" {
		a, b = b, a
	}
	switch {
	case a.Hash != "" && b.Hash != "" && a.Hash != b.Hash:
		ours, theirs := models.ModelsDiffer(a.Hash, b.Hash)
		return a, fmt.Errorf("%w: %s was measured with %s and with %s; rename one of the models, or leave out what was measured of one", errMixed, a.Name, ours, theirs)
	case a.Hash != "" && b.Hash != "" && a.Operators != b.Operators:
		return a, fmt.Errorf("%w: %s is cut into %d and into %d operators; use the measurements of one cut", errMixed, a.Name, a.Operators, b.Operators)
	case a.Hash != "" && b.Operators > a.Operators:
		return a, fmt.Errorf("%w: %s has %d operators, but a span of it ends at %d", errMixed, a.Name, a.Operators, b.Operators)
	case b.Name != "":
		a.Operators = max(a.Operators, b.Operators)
	}
	return a, nil
}

// append adds the rows of from, all of whose models d already has.
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
		slices.SortFunc(r.Group.Spans, func(a, b models.Span) int { return int(a.Service - b.Service) })
		d.Rows = append(d.Rows, r)
	}
}

// Model returns the index of the model with this name, or -1 if there is none.
func (d *Dataset) Model(name string) int {
	i, found := slices.BinarySearchFunc(d.Models, name, func(m Model, name string) int { return strings.Compare(m.Name, name) })
	if !found {
		return -1
	}
	return i
}

// Without returns the rows of d that are not in known. Rows are equal if the names of their
// models, their spans and their times are equal.
func (d *Dataset) Without(known *Dataset) *Dataset {
	have := map[string]bool{}
	for i := range known.Rows {
		have[known.rowKey(&known.Rows[i])] = true
	}
	rest := &Dataset{Device: d.Device, Models: d.Models}
	for i := range d.Rows {
		if !have[d.rowKey(&d.Rows[i])] {
			rest.Rows = append(rest.Rows, d.Rows[i])
		}
	}
	return rest
}

// rowKey identifies a row independently of the indices of its models.
func (d *Dataset) rowKey(r *Row) string {
	key := fmt.Append(nil, r.Median, r.Mean, r.Std)
	for _, s := range r.Group.Spans {
		key = fmt.Appendf(key, "%q %d %d %d %d|", d.Models[s.Service].Name, s.Start, s.End, s.Size, s.SeqLen)
	}
	return string(key)
}

// The errors of reading and combining measurements.
var (
	// ErrFormat is returned when a file does not hold measurements in the form that ReadPath
	// accepts.
	ErrFormat = errors.New("unusable measurements")

	// ErrLimit is returned when there are more measurements, models or bytes than a dataset may
	// have.
	ErrLimit = errors.New("too many measurements")

	// errMixed is returned when measurements cannot be combined: they come from different devices,
	// or from different models with the same name.
	errMixed = errors.New("measurements do not belong together")
)

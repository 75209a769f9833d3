package training

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/overlapd/overlapd/models"
)

// Limits of a dataset.
const (
	MaxRows      = 1 << 20
	MaxModels    = 256
	MaxSpans     = 16      // of a group
	MaxOperators = 1 << 20 // of a model
	MaxSize      = 1 << 20 // of a batch
	MaxSeqLen    = 1 << 24
	MaxMicros    = 1e12 // of a run, about eleven days

	maxNameBytes = 256
)

// Dataset is operator groups measured on one device.
type Dataset struct {
	Device string  // in words, "" if unknown
	Models []Model // sorted by name; Row.Group names a model by its position, as its Service
	Rows   []Row
}

// Model is what a dataset knows of a model.
type Model struct {
	Name      string `json:"name"`
	Hash      string `json:"hash,omitempty"` // models.Model.Hash, "" if unknown
	Operators int    `json:"operators"`
}

// Row is one measured group.
type Row struct {
	Group   models.Group // spans in the order of Dataset.Models, none of them empty
	Repeats int          // how often it was run, 0 if unknown
	Median  float64      // of the runs, microseconds
	Mean    float64      // microseconds
	Std     float64      // standard deviation, microseconds
	Device  float64      // median by the device's own clock, microseconds; 0 if it is unknown, as on a CPU
}

// Check reports the first fault of a dataset: models out of order or without
// a name, and rows that no group of these models can have.
func (d *Dataset) Check() error {
	if err := checkModels(d.Models); err != nil {
		return err
	}
	if len(d.Rows) > MaxRows {
		return fmt.Errorf("%w: %d rows, the limit is %d", ErrLimit, len(d.Rows), MaxRows)
	}
	for i := range d.Rows {
		if err := d.Rows[i].check(d.Models); err != nil {
			return fmt.Errorf("row %d: %w", i, err)
		}
	}
	return nil
}

func checkModels(list []Model) error {
	if len(list) > MaxModels {
		return fmt.Errorf("%w: %d models, the limit is %d", ErrLimit, len(list), MaxModels)
	}
	for i, m := range list {
		if err := checkName(m.Name); err != nil {
			return err
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

// checkName refuses names that could not be written to a file and read again.
func checkName(name string) error {
	switch {
	case name == "" || strings.TrimSpace(name) != name:
		return fmt.Errorf("%w: %q is no name of a model", ErrFormat, name)
	case len(name) > maxNameBytes:
		return fmt.Errorf("%w: a model's name of %d bytes, the limit is %d", ErrFormat, len(name), maxNameBytes)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return fmt.Errorf("%w: the model's name %q has characters that cannot be printed", ErrFormat, name)
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
	for _, micros := range []float64{r.Median, r.Mean} {
		if err := checkMicros(micros, false); err != nil {
			return err
		}
	}
	if err := checkMicros(r.Device, true); err != nil {
		return err
	}
	return checkMicros(r.Std, true)
}

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
		case s.Size < 1 || s.Size > MaxSize || s.SeqLen < 0 || s.SeqLen > MaxSeqLen:
			return fmt.Errorf("%w: span of %s with batch size %d, sequence length %d", ErrFormat, m.Name, s.Size, s.SeqLen)
		case i > 0 && g.Spans[i-1].Service >= s.Service:
			return fmt.Errorf("%w: the span of %s is not in the order of the models", ErrFormat, m.Name)
		}
	}
	return nil
}

// checkMicros refuses what no run can take. Only a spread may be zero.
func checkMicros(v float64, zero bool) error {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Errorf("%w: %v is no time", ErrFormat, v)
	case v < 0 || v == 0 && !zero:
		return fmt.Errorf("%w: a time of %v microseconds", ErrFormat, v)
	case v > MaxMicros:
		return fmt.Errorf("%w: %v microseconds exceed %v", ErrFormat, v, MaxMicros)
	}
	return nil
}

// sortSpans puts the spans of a group into the order of the models.
func sortSpans(spans []models.Span) {
	slices.SortFunc(spans, func(a, b models.Span) int { return int(a.Service - b.Service) })
}

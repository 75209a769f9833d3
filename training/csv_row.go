package training

import (
	"math"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/models"
)

// readRow turns the fields into a row.
func (c *csvReader) readRow() (err error) {
	if want := c.columns(); len(c.fields) != want {
		return c.fault(wholeLine, "%d fields, the first line names %d columns; correct the row or remove it", len(c.fields), want)
	}
	var row Row
	row.Group.Spans = make([]models.Span, 0, c.slots)
	for slot := range c.slots {
		if err := c.readSlot(slot*len(slotColumns), &row.Group); err != nil {
			return err
		}
	}
	if len(row.Group.Spans) == 0 {
		return c.fault(wholeLine, "no slot has operators to run; remove the row")
	}
	at := c.slots * len(slotColumns)
	for i, to := range []*float64{&row.Median, &row.Mean, &row.Std} {
		if *to, err = c.micros(at+i, i == 2); err != nil {
			return err
		}
	}
	if at += len(timeColumns); c.device && c.fields[at] != "" {
		if row.Device, err = c.micros(at, true); err != nil {
			return err
		}
	}
	c.rows = append(c.rows, row)
	return nil
}

// columns returns how many fields a row has.
func (c *csvReader) columns() int {
	n := c.slots*len(slotColumns) + len(timeColumns)
	if c.device {
		n++
	}
	return n
}

// readSlot adds the span of a slot. A slot without a model is empty, as is
// one whose span starts where it ends: the original system measured such
// groups, in which a model takes part with nothing to run.
func (c *csvReader) readSlot(at int, g *models.Group) (err error) {
	name := c.fields[at]
	if name == "" {
		for i := range slotColumns {
			if f := c.fields[at+i]; f != "" && f != "0" {
				return c.fault(at+i, "%q in a slot without a model; name the model or leave all of the slot empty", clip(f))
			}
		}
		return nil
	}
	var s models.Span
	for i, to := range []*int{&s.Start, &s.End, &s.Size, &s.SeqLen} {
		least := []int{0, 0, 1, 0}[i]
		most := []int{MaxOperators, MaxOperators, MaxSize, MaxSeqLen}[i]
		if *to, err = c.whole(at+1+i, least, most); err != nil {
			return err
		}
	}
	if s.Start > s.End {
		return c.fault(at+2, "the span [%d, %d) of %s ends before it starts; swap them or remove the row", s.Start, s.End, clip(name))
	}
	if s.Start == s.End {
		return nil
	}
	model, err := c.model(at, name, s.End)
	if err != nil {
		return err
	}
	s.Service = models.ServiceID(model)
	for _, other := range g.Spans {
		if other.Service == s.Service {
			return c.fault(at, "%s stands twice in one group; give the two services' models different names", clip(name))
		}
	}
	g.Spans = append(g.Spans, s)
	return nil
}

// model returns the position of a model that has a span ending at end.
func (c *csvReader) model(at int, name string, end int) (int, error) {
	i, seen := c.byName[name]
	if !seen {
		m, err := c.newModel(at, name)
		if err != nil {
			return 0, err
		}
		i = len(c.models)
		c.byName[m.Name] = i
		c.models = append(c.models, m)
	}
	if m := &c.models[i]; len(c.known) == 0 {
		m.Operators = max(m.Operators, end)
	} else if end > m.Operators {
		return 0, c.fault(at+2, "a span of %s ends at %d, but it has %d operators; was it cut differently?", m.Name, end, m.Operators)
	}
	return i, nil
}

// newModel returns a model that is seen for the first time.
func (c *csvReader) newModel(at int, name string) (Model, error) {
	if len(c.models) == MaxModels {
		return Model{}, c.fault(at, "more than %d models; split the file", MaxModels)
	}
	if err := checkName(name); err != nil {
		return Model{}, &CSVError{File: c.name, Line: c.table.LineOf(at), Column: at + 1, Name: slotColumns[0], Err: err}
	}
	if len(c.known) == 0 {
		return Model{Name: strings.Clone(name)}, nil
	}
	names := make([]string, len(c.known))
	for i, m := range c.known {
		if m.Name == name {
			return m, nil
		}
		names[i] = m.Name
	}
	return Model{}, c.fault(at, "unknown model %q; the known ones are %s", clip(name), strings.Join(names, ", "))
}

// whole reads a whole number.
func (c *csvReader) whole(field, least, most int) (int, error) {
	v, err := strconv.Atoi(c.fields[field])
	if err != nil {
		return 0, c.fault(field, "%q is not a whole number; correct it or remove the row", clip(c.fields[field]))
	}
	if v < least || v > most {
		return 0, c.fault(field, "%d is not between %d and %d; correct it or remove the row", v, least, most)
	}
	return v, nil
}

// micros reads a time. Only a spread may be zero.
func (c *csvReader) micros(field int, zero bool) (float64, error) {
	v, err := strconv.ParseFloat(c.fields[field], 64)
	switch {
	case err != nil || math.IsNaN(v) || math.IsInf(v, 0):
		return 0, c.fault(field, "%q is not a time in microseconds; measure the group again or remove the row", clip(c.fields[field]))
	case v < 0 || v == 0 && !zero:
		return 0, c.fault(field, "%v is not a time that a run can take; measure the group again or remove the row", v)
	case v > MaxMicros:
		return 0, c.fault(field, "%v microseconds exceed %v; times are in microseconds", v, MaxMicros)
	}
	return v, nil
}

// clip shortens a field for an error.
func clip(field string) string {
	if len(field) > maxCSVFault {
		return field[:maxCSVFault] + "..."
	}
	return field
}

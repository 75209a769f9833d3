package training

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/textfile"
)

// Limits of a CSV file.
const (
	maxCSVBytes = 256 << 20
	maxCSVFault = 64 // bytes of a field that are shown
)

// The columns: those of a slot as often as a group may have spans, then those
// of the times.
var (
	slotColumns = []string{"model", "start", "end", "bs", "seq_len"}
	timeColumns = []string{"median", "mean", "std"}
)

// deviceColumn may follow them: the median by the device's own clock. A field of
// it may be empty.
const deviceColumn = "device"

// oldStd is what the original system calls its standard deviation.
const oldStd = "var"

// ReadCSV reads measured groups in the form that docs/dataset.md gives. The
// name stands in errors. A model has as many operators as the largest end of its
// spans. Every fault names the file, and the line and column where there are such.
func ReadCSV(r io.Reader, name string) (*Dataset, error) {
	return readCSV(r, name, maxCSVBytes)
}

func readCSV(r io.Reader, name string, maxBytes int64) (*Dataset, error) {
	c := csvReader{name: name, byName: map[string]int{}, table: textfile.NewTable(r, maxBytes)}
	if err := c.readAll(); err != nil {
		return nil, err
	}
	return Merge(&Dataset{Models: c.models, Rows: c.rows})
}

// csvReader reads one file. Its models stand in the order of their first
// appearance until the end.
type csvReader struct {
	name  string
	table *textfile.Table

	// slots is how many spans a line has room for; device is set if the file has that
	// column. fields are those of the line being read.
	slots  int
	device bool
	fields []string

	models []Model
	byName map[string]int
	rows   []Row
}

func (c *csvReader) readAll() error {
	switch err := c.next(); {
	case errors.Is(err, io.EOF):
		return c.fault(wholeFile, "the file is empty; its first line names the columns: %s", c.header(2))
	case err != nil:
		return err
	}
	if err := c.readHeader(); err != nil {
		return err
	}
	for {
		switch err := c.next(); {
		case errors.Is(err, io.EOF) && len(c.rows) == 0:
			return c.fault(wholeFile, "there are columns, but no row below them; measure some groups, or leave the file out")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if len(c.rows) == MaxRows {
			return inFile(c.name, c.table.Line(), fmt.Errorf("%w: more than %d rows; split the file", ErrLimit, MaxRows))
		}
		if err := c.readRow(); err != nil {
			return err
		}
	}
}

// next reads a line into fields.
func (c *csvReader) next() (err error) {
	c.fields, err = c.table.Read()
	return tableError(c.name, c.table, err)
}

// tableError returns an error of a table with the file and the line. The end of
// the table is as it was.
func tableError(name string, table *textfile.Table, err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, textfile.ErrTooLarge):
		return inFile(name, table.Line(), fmt.Errorf("%w: %w", ErrLimit, err))
	case errors.Is(err, textfile.ErrSyntax) || errors.Is(err, textfile.ErrNotText):
		return inFile(name, table.Line(), fmt.Errorf("%w: %w", ErrFormat, err))
	}
	return fmt.Errorf("%s: %w", name, err)
}

// inFile adds to an error where in a file it was found; line 0 is the whole file.
func inFile(file string, line int, err error) error {
	return &textfile.Fault{File: file, Line: line, Err: err}
}

// What a fault concerns if not one field.
const (
	wholeFile = -1
	wholeLine = -2
)

// fault returns the error for a field of the line that was read last.
func (c *csvReader) fault(field int, format string, args ...any) error {
	err := fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)
	switch field {
	case wholeFile:
		return inFile(c.name, 0, err)
	case wholeLine:
		return inFile(c.name, c.table.LineOf(0), err)
	}
	return c.inField(field, c.column(field), err)
}

// inField adds to an error in which field of the line it was found.
func (c *csvReader) inField(field int, column string, err error) error {
	if column != "" {
		column = fmt.Sprintf(" (%s)", column)
	}
	return fmt.Errorf("%s:%d: column %d%s: %w", c.name, c.table.LineOf(field), field+1, column, err)
}

// column returns the name of a column.
func (c *csvReader) column(field int) string {
	switch first := c.slots * len(slotColumns); {
	case field < first:
		return slotColumns[field%len(slotColumns)]
	case field < first+len(timeColumns):
		return timeColumns[field-first]
	case c.device && field == first+len(timeColumns):
		return deviceColumn
	}
	return ""
}

func (c *csvReader) header(slots int) string {
	return strings.Join(append(slices.Repeat(slotColumns, slots), timeColumns...), ",")
}

// readHeader takes the number of slots from the line that names the columns.
func (c *csvReader) readHeader() error {
	at := 0
	for at < len(c.fields) && strings.EqualFold(c.fields[at], slotColumns[0]) {
		for _, want := range slotColumns {
			if err := c.want(at, want); err != nil {
				return err
			}
			at++
		}
		c.slots++
	}
	if c.slots == 0 {
		return c.fault(wholeLine, "it does not name the columns; put this line first: %s", c.header(2))
	}
	if c.slots > MaxSpans {
		return c.fault(wholeLine, "%d models to a row, the limit is %d; split the file", c.slots, MaxSpans)
	}
	for _, want := range timeColumns {
		if err := c.want(at, want); err != nil {
			return err
		}
		at++
	}
	if at < len(c.fields) && strings.EqualFold(c.fields[at], deviceColumn) {
		c.device = true
		at++
	}
	if at < len(c.fields) {
		return c.fault(at, "a column %q that measurements do not have; remove it", clip(c.fields[at]))
	}
	return nil
}

// want checks the name of a column.
func (c *csvReader) want(field int, want string) error {
	if field >= len(c.fields) {
		return c.fault(wholeLine, "column %d, %s, is missing; the columns are %s", field+1, want, c.header(max(c.slots, 1)))
	}
	got := strings.ToLower(c.fields[field])
	if got == want || want == timeColumns[2] && got == oldStd {
		return nil
	}
	return c.inField(field, "", fmt.Errorf("%w: this column is %q and must be %s; the columns are %s", ErrFormat, clip(c.fields[field]), want, c.header(max(c.slots, 1))))
}

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
	m := &c.models[i]
	m.Operators = max(m.Operators, end)
	return i, nil
}

// newModel returns a model that is seen for the first time.
func (c *csvReader) newModel(at int, name string) (Model, error) {
	if len(c.models) == MaxModels {
		return Model{}, c.fault(at, "more than %d models; split the file", MaxModels)
	}
	if err := checkName(name); err != nil {
		return Model{}, c.inField(at, slotColumns[0], err)
	}
	return Model{Name: strings.Clone(name)}, nil
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

// WriteCSV writes all rows. There are as many slots as the largest group has
// spans; smaller groups leave slots empty. There is a column for the device's own
// clock if that is known of any row.
func WriteCSV(w io.Writer, d *Dataset) error {
	if err := d.Check(); err != nil {
		return err
	}
	slots, device := 1, false
	for i := range d.Rows {
		slots = max(slots, len(d.Rows[i].Group.Spans))
		device = device || d.Rows[i].Device > 0
	}
	out := csv.NewWriter(w)
	fields := append(slices.Repeat(slotColumns, slots), timeColumns...)
	if device {
		fields = append(fields, deviceColumn)
	}
	_ = out.Write(fields) // the writer keeps its first error
	for i := range d.Rows {
		fields = d.fields(fields[:0], &d.Rows[i], slots)
		if device {
			fields = append(fields, deviceField(d.Rows[i].Device))
		}
		_ = out.Write(fields)
	}
	out.Flush()
	return out.Error()
}

func (d *Dataset) fields(fields []string, r *Row, slots int) []string {
	for _, s := range r.Group.Spans {
		fields = append(fields, d.Models[s.Service].Name, strconv.Itoa(s.Start), strconv.Itoa(s.End), strconv.Itoa(s.Size), strconv.Itoa(s.SeqLen))
	}
	for len(fields) < slots*len(slotColumns) {
		fields = append(fields, "")
	}
	for _, v := range []float64{r.Median, r.Mean, r.Std} {
		fields = append(fields, strconv.FormatFloat(v, 'g', -1, 64))
	}
	return fields
}

// deviceField leaves empty what is unknown.
func deviceField(micros float64) string {
	if micros == 0 {
		return ""
	}
	return strconv.FormatFloat(micros, 'g', -1, 64)
}

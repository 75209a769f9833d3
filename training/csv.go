package training

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/intake"
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
// name stands in errors. If known models are given, others are refused, and
// hashes and operators are theirs; else a model has as many operators as the
// largest end of its spans. Every fault is a *CSVError.
func ReadCSV(r io.Reader, name string, known ...Model) (*Dataset, error) {
	return readCSV(r, name, known, maxCSVBytes)
}

func readCSV(r io.Reader, name string, known []Model, maxBytes int64) (*Dataset, error) {
	c := csvReader{name: name, known: known, byName: map[string]int{}, table: intake.NewTable(r, maxBytes)}
	if err := c.readAll(); err != nil {
		return nil, err
	}
	return Merge(&Dataset{Models: c.models, Rows: c.rows})
}

// csvReader reads one file. Its models stand in the order of their first
// appearance until the end.
type csvReader struct {
	name   string
	table  *intake.Table
	slots  int
	device bool // the file has the column
	known  []Model
	models []Model
	byName map[string]int
	rows   []Row
	fields []string // of the line being read
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
			return &CSVError{File: c.name, Line: c.table.Line(), Err: fmt.Errorf("%w: more than %d rows; split the file", ErrLimit, MaxRows)}
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
func tableError(name string, table *intake.Table, err error) error {
	switch {
	case err == nil || errors.Is(err, io.EOF):
		return err
	case errors.Is(err, intake.ErrTooLarge):
		return &CSVError{File: name, Line: table.Line(), Err: fmt.Errorf("%w: %w", ErrLimit, err)}
	case errors.Is(err, intake.ErrSyntax) || errors.Is(err, intake.ErrNotText):
		return &CSVError{File: name, Line: table.Line(), Err: fmt.Errorf("%w: %w", ErrFormat, err)}
	}
	return fmt.Errorf("%s: %w", name, err)
}

// What a fault concerns if not one field.
const (
	wholeFile = -1
	wholeLine = -2
)

// fault returns the error for a field of the line that was read last.
func (c *csvReader) fault(field int, format string, args ...any) error {
	e := &CSVError{File: c.name, Err: fmt.Errorf("%w: "+format, append([]any{ErrFormat}, args...)...)}
	if field != wholeFile {
		e.Line = c.table.LineOf(max(field, 0))
	}
	if field >= 0 {
		e.Column, e.Name = field+1, c.column(field)
	}
	return e
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
	err := c.fault(field, "this column is %q and must be %s; the columns are %s", clip(c.fields[field]), want, c.header(max(c.slots, 1)))
	var e *CSVError
	if errors.As(err, &e) {
		e.Name = ""
	}
	return err
}

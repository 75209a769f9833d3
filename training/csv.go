package training

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
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
	limited := &io.LimitedReader{R: r, N: maxBytes + 1}
	c := csvReader{name: name, known: known, byName: map[string]int{}, csv: csv.NewReader(skipBOM(limited))}
	c.csv.FieldsPerRecord = -1
	c.csv.ReuseRecord = true
	err := c.readAll()
	if limited.N <= 0 {
		return nil, &CSVError{File: name, Err: fmt.Errorf("%w: more than %d bytes; split the file", ErrLimit, maxBytes)}
	}
	if err != nil {
		return nil, err
	}
	return Merge(&Dataset{Models: c.models, Rows: c.rows})
}

// skipBOM skips the mark that spreadsheets put before UTF-8.
func skipBOM(r io.Reader) io.Reader {
	b := bufio.NewReader(r)
	if mark, err := b.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = b.Discard(len(mark)) // they have been read
	}
	return b
}

// csvReader reads one file. Its models stand in the order of their first
// appearance until the end.
type csvReader struct {
	name   string
	csv    *csv.Reader
	slots  int
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
			return c.fault(wholeFile, "there are columns, but no row below them")
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if len(c.rows) == MaxRows {
			line, _ := c.csv.FieldPos(0)
			return &CSVError{File: c.name, Line: line, Err: fmt.Errorf("%w: more than %d rows; split the file", ErrLimit, MaxRows)}
		}
		if err := c.readRow(); err != nil {
			return err
		}
	}
}

// next reads a line into fields.
func (c *csvReader) next() (err error) {
	c.fields, err = c.csv.Read()
	var fault *csv.ParseError
	if errors.As(err, &fault) {
		return &CSVError{File: c.name, Line: fault.Line, Err: fmt.Errorf("%w: %w", ErrFormat, fault.Err)}
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("%s: %w", c.name, err)
	}
	for i, f := range c.fields {
		c.fields[i] = strings.TrimSpace(f)
	}
	return err
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
		e.Line, _ = c.csv.FieldPos(max(field, 0))
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
		return c.fault(wholeLine, "%d models to a row, the limit is %d", c.slots, MaxSpans)
	}
	for _, want := range timeColumns {
		if err := c.want(at, want); err != nil {
			return err
		}
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
		return c.fault(wholeLine, "column %d, %s, is missing", field+1, want)
	}
	got := strings.ToLower(c.fields[field])
	if got == want || want == timeColumns[2] && got == oldStd {
		return nil
	}
	err := c.fault(field, "this column is %q and must be %s", clip(c.fields[field]), want)
	var e *CSVError
	if errors.As(err, &e) {
		e.Name = ""
	}
	return err
}

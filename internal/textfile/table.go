package textfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// maxLineBytes limits a row, together with the empty lines before it.
const maxLineBytes = 1 << 20

// Sheet describes a kind of CSV file: a header line that names the columns, and rows with one
// field per column.
type Sheet struct {
	// Form describes the content of such a file to a user who has to correct one.
	Form    string
	MaxRows int

	// Unusable is wrapped by the errors of files that are not of this kind, and TooLarge by
	// those of files beyond the limits.
	Unusable, TooLarge error
}

// Table is a file of a [Sheet] that is being read. Reading stops at the first fault.
type Table struct {
	// Head names the columns. Fields holds the current row, with surrounding white space
	// removed. It is overwritten by the next row.
	Head, Fields []string

	sheet *Sheet
	name  string
	in    *meter
	csv   *csv.Reader
	line  int
	err   error
}

// ReadFile reads the file at path like [Sheet.Read].
func (s *Sheet) ReadFile(path string, head, row func(*Table)) error {
	file, err := Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return s.Read(file, path, head, row)
}

// Read reads a file to its end and ignores blank lines. It calls head once the columns are
// known, and row for each row. Errors name the file and the line. They wrap Unusable or
// TooLarge, except for errors of r itself.
func (s *Sheet) Read(r io.Reader, name string, head, row func(*Table)) error {
	t := newTable(s, r, name)
	if !t.next() {
		if t.err == nil {
			t.line = 0
			t.Fault("the file is empty; it must have %s", s.Form)
		}
		return t.err
	}
	t.Head = slices.Clone(t.Fields)
	head(t)
	rows := 0
	for ; t.err == nil && t.next(); rows++ {
		switch {
		case rows == s.MaxRows:
			t.fail(t.line, s.TooLarge, fmt.Errorf("more than %d rows; split the file", rows))
		case len(t.Fields) != len(t.Head):
			t.Fault("%d fields, the first line names %d columns; correct the row or remove it", len(t.Fields), len(t.Head))
		default:
			row(t)
		}
	}
	if t.err == nil && rows == 0 {
		t.line = 0
		t.Fault("there are columns, but no row below them; add some, or leave the file out")
	}
	return t.err
}

// newTable returns a table for r after checking that it is text.
func newTable(s *Sheet, r io.Reader, name string) *Table {
	t := &Table{sheet: s, name: name, in: &meter{r: r}}
	text, err := newText(t.in)
	if err != nil {
		t.explain(err)
		return t
	}
	t.csv = csv.NewReader(text)
	// Read counts the fields itself, so that its error can name the remedy.
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
	return t
}

// next reads the next row that is not blank. It returns false at the end of the file or after a
// fault.
func (t *Table) next() bool {
	t.in.recordBytes = 0
	for t.err == nil {
		fields, err := t.csv.Read()
		if err != nil {
			t.explain(err)
			return false
		}
		t.line, _ = t.csv.FieldPos(0)
		for i, f := range fields {
			fields[i] = strings.TrimSpace(f)
		}
		if t.Fields = fields; len(fields) > 1 || fields[0] != "" {
			return true
		}
	}
	return false
}

// explain records the error that ended the reading, unless it is the end of the file.
func (t *Table) explain(err error) {
	var syntax *csv.ParseError
	switch {
	case errors.Is(err, errTooLarge):
		// err would repeat a position that encoding/csv has added.
		t.fail(t.line+1, t.sheet.TooLarge, t.in.fault)
	case errors.Is(err, errNotText):
		t.fail(0, t.sheet.Unusable, err)
	case errors.As(err, &syntax):
		t.fail(syntax.Line, t.sheet.Unusable, fmt.Errorf("%w: %w; put a field that has quotes, commas or line ends into quotes, and write its quotes twice", errSyntax, syntax.Err))
	case !errors.Is(err, io.EOF):
		t.err = &Fault{File: t.name, Err: err}
	}
}

// fail records an error unless there is one already: the first fault is the cause of others.
func (t *Table) fail(line int, kind, err error) {
	if t.err == nil {
		t.err = &Fault{File: t.name, Line: line, Err: fmt.Errorf("%w: %w", kind, err)}
	}
}

// Fault rejects the current row.
func (t *Table) Fault(format string, args ...any) {
	t.fail(t.line, t.sheet.Unusable, fmt.Errorf(format, args...))
}

// Refuse rejects the field at index at of the current row.
func (t *Table) Refuse(at int, format string, args ...any) {
	line, _ := t.csv.FieldPos(at)
	why := fmt.Errorf(format, args...)
	t.fail(line, t.sheet.Unusable, fmt.Errorf("column %d (%s) is %.40q: %w", at+1, t.Head[at], t.Fields[at], why))
}

// Number returns a field as a number in [least, most], and rejects any other value.
func (t *Table) Number(at int, least, most float64) float64 {
	v, err := strconv.ParseFloat(t.Fields[at], 64)
	// The negated comparison also rejects NaN.
	if err != nil || !(v >= least && v <= most) {
		t.Refuse(at, "it must be a number from %v to %v", least, most)
		return 0
	}
	return v
}

// Whole returns a field as an integer in [least, most], and rejects any other value. It accepts
// forms such as 8.0, because spreadsheets write them.
func (t *Table) Whole(at, least, most int) int {
	v, err := strconv.ParseFloat(t.Fields[at], 64)
	if err != nil || !(v >= float64(least) && v <= float64(most)) || v != math.Trunc(v) {
		t.Refuse(at, "it must be a whole number from %d to %d", least, most)
		return 0
	}
	return int(v)
}

// Column returns the index of the column with one of the names, ignoring case, or -1 if there
// is none. Names must be in lower case. Two such columns are a fault.
func (t *Table) Column(names ...string) int {
	found := -1
	for i, h := range t.Head {
		if !slices.Contains(names, strings.ToLower(h)) {
			continue
		}
		if found >= 0 {
			t.Fault("columns %d and %d are both %s; rename one", found+1, i+1, strings.Join(names, " or "))
		}
		found = i
	}
	return found
}

// Require returns the index of a column like Column, and rejects a file without it.
func (t *Table) Require(names ...string) int {
	at := t.Column(names...)
	if at < 0 {
		t.Fault("no column %s among %.80q; it must have %s", strings.Join(names, " or "), strings.Join(t.Head, ","), t.sheet.Form)
	}
	return at
}

// Columns rejects a file whose columns are not exactly these, in this order.
func (t *Table) Columns(want ...string) {
	for i, name := range want {
		if i >= len(t.Head) {
			t.Fault("column %d, %s, is missing; it must have %s", i+1, name, t.sheet.Form)
		} else if !strings.EqualFold(t.Head[i], name) {
			t.Fault("column %d is %.40q and must be %s; it must have %s", i+1, t.Head[i], name, t.sheet.Form)
		}
	}
	if more := len(want); len(t.Head) > more {
		t.Fault("column %d, %.40q, is one too many; remove it", more+1, t.Head[more])
	}
}

// Line returns the line number of the current row, counted from 1.
func (t *Table) Line() int { return t.line }

// meter limits a row to maxLineBytes, because encoding/csv would keep a line of any length in
// memory. Beyond the limit, Read fails with an error that wraps errTooLarge, and keeps it as
// fault.
type meter struct {
	r           io.Reader
	recordBytes int
	fault       error
}

func (m *meter) Read(p []byte) (int, error) {
	if m.recordBytes > maxLineBytes {
		m.fault = fmt.Errorf("%w: more than %d bytes and no row; see that every row ends with its line", errTooLarge, maxLineBytes)
		return 0, m.fault
	}
	n, err := m.r.Read(p)
	m.recordBytes += n
	return n, err
}

package textfile

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
)

// MaxLineBytes limits a record of a table together with the empty lines before it.
const MaxLineBytes = 1 << 20

// Table reads a CSV file, record by record. Records may have any number of
// fields.
type Table struct {
	in    *meter
	csv   *csv.Reader
	line  int
	begun bool
}

// NewTable returns a reader of a table of at most maxBytes bytes.
func NewTable(r io.Reader, maxBytes int64) *Table {
	return &Table{in: &meter{r: r, left: maxBytes, most: maxBytes}}
}

// Read returns the next record, or [io.EOF] after the last. White space around
// fields is trimmed and blank lines are skipped. The record is valid until the
// next call. Other errors wrap [ErrNotText], [ErrTooLarge] or [ErrSyntax] and
// belong to [Table.Line], or they are those of the reader.
func (t *Table) Read() ([]string, error) {
	t.in.recordBytes = 0
	if err := t.begin(); err != nil {
		return nil, err
	}
	for {
		fields, err := t.csv.Read()
		if err != nil {
			return nil, t.fault(err)
		}
		t.line, _ = t.csv.FieldPos(0)
		for i, f := range fields {
			fields[i] = strings.TrimSpace(f)
		}
		if len(fields) > 1 || fields[0] != "" {
			return fields, nil
		}
	}
}

// begin checks once, before the first record, that the file is text.
func (t *Table) begin() error {
	if t.begun {
		return nil
	}
	text, err := NewText(t.in)
	if err != nil {
		return err
	}
	t.begun = true
	t.csv = csv.NewReader(text)
	t.csv.FieldsPerRecord = -1
	t.csv.ReuseRecord = true
	return nil
}

func (t *Table) fault(err error) error {
	if errors.Is(err, ErrTooLarge) {
		t.line++
		return t.in.fault // not err, to which package csv has added a position
	}
	var syntax *csv.ParseError
	if !errors.As(err, &syntax) {
		return err
	}
	t.line = syntax.Line
	return fmt.Errorf("%w: %w; put a field that has quotes, commas or line ends into quotes, and write its quotes twice", ErrSyntax, syntax.Err)
}

// Line returns the line, from 1, of the last error or else of the beginning of
// the last record. It is 0 where an error concerns the whole file.
func (t *Table) Line() int { return t.line }

// LineOf returns the line of a field of the last record.
func (t *Table) LineOf(field int) int {
	line, _ := t.csv.FieldPos(field)
	return line
}

// meter limits a file to most bytes and a record to MaxLineBytes. Beyond them it
// fails with an error that wraps ErrTooLarge, which it keeps as fault.
type meter struct {
	r           io.Reader
	most, left  int64
	recordBytes int
	fault       error
}

func (m *meter) Read(p []byte) (int, error) {
	switch {
	case m.recordBytes > MaxLineBytes:
		m.fault = fmt.Errorf("%w: more than %d bytes and no row; see that every row ends with its line", ErrTooLarge, MaxLineBytes)
		return 0, m.fault
	case m.left < 0:
		m.fault = fmt.Errorf("%w: more than %d bytes; split the file", ErrTooLarge, m.most)
		return 0, m.fault
	}
	n, err := m.r.Read(p[:min(int64(len(p)), m.left+1)])
	m.left -= int64(n)
	m.recordBytes += n
	return n, err
}

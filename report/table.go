package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table is rows of cells under a heading each. Columns of numbers are aligned to
// the right, all others to the left.
type Table struct {
	head []string
	rows [][]cell
}

type cell struct {
	Text  string
	Color string // behind the text on a page, "" for none
	Right bool
}

// NewTable returns an empty table with these columns.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds a row. Columns that it does not reach stay empty.
func (t *Table) Row(cells ...string) {
	row := make([]cell, len(t.head))
	for c := range row {
		row[c].Right = true
		if c < len(cells) {
			row[c] = cell{Text: plain(cells[c]), Right: isNumber(cells[c])}
		}
	}
	t.rows = append(t.rows, row)
}

// Rowf adds a row, whose cells the format parts by tabs. Tabs in its arguments
// part none.
func (t *Table) Rowf(format string, args ...any) {
	safe := make([]any, len(args))
	for i, a := range args {
		switch safe[i] = a; a.(type) {
		case string, fmt.Stringer, error:
			safe[i] = plain(fmt.Sprint(a))
		}
	}
	t.Row(strings.Split(fmt.Sprintf(format, safe...), "\t")...)
}

// Paint colours the cell of the last row in a column behind its text, on a page
// only. The colour is one of CSS, such as #e9a3a3.
func (t *Table) Paint(column int, color string) { t.rows[len(t.rows)-1][column].Color = color }

// isNumber reports whether a cell holds a number, perhaps with a mark before it
// or a unit behind it, or stands for one that is missing.
func isNumber(text string) bool {
	digits := strings.TrimLeft(text, "+-~!<>±.")
	return digits == "" || digits[0] >= '0' && digits[0] <= '9'
}

// columns are the headings, each with the alignment of all its column.
func (t *Table) columns() []cell {
	columns := make([]cell, len(t.head))
	for c, text := range t.head {
		columns[c] = cell{Text: text, Right: c > 0}
		for _, row := range t.rows {
			columns[c].Right = columns[c].Right && row[c].Right
		}
	}
	return columns
}

// WriteText writes the table alone for a terminal.
func (t *Table) WriteText(w io.Writer) error {
	var b strings.Builder
	t.write(&b, 0)
	_, err := io.WriteString(w, b.String())
	return err
}

// gap is between the columns of a text.
const gap = "  "

// write writes the table, and no more than fits of it, with a gap between columns and none
// behind the last.
func (t *Table) write(b *strings.Builder, most int) {
	columns := t.columns()
	widths := make([]int, len(columns))
	lines := append([][]cell{columns}, t.rows...)
	for _, row := range lines {
		for c := range row {
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c].Text))
		}
	}
	if most > 0 {
		widths = fitted(widths, most)
	}
	for _, row := range lines {
		var line strings.Builder
		for c, width := range widths {
			text := row[c].Text
			if utf8.RuneCountInString(text) > width {
				text = string([]rune(text)[:max(width-1, 0)]) + "…"
			}
			if columns[c].Right {
				fmt.Fprintf(&line, "%*s"+gap, width, text)
			} else {
				fmt.Fprintf(&line, "%-*s"+gap, width, text)
			}
		}
		if text := strings.TrimRight(line.String(), " "); text != "" {
			fmt.Fprintln(b, text)
		}
	}
}

// fitted returns the widths of the columns that fit into so many: the first, names, is cut to
// a fifth of them where all do not fit, and then the last are left out.
func fitted(widths []int, most int) []int {
	sum := func() (all int) {
		for _, w := range widths {
			all += w + len(gap)
		}
		return all - len(gap)
	}
	if over := sum() - most; over > 0 && len(widths) > 1 {
		widths[0] = max(widths[0]-over, min(widths[0], most/5))
	}
	for len(widths) > 1 && sum() > most {
		widths = widths[:len(widths)-1]
	}
	return widths
}

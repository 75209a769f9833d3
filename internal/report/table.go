package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Table holds rows of cells under column headings. A column of numbers is aligned to the right,
// any other to the left.
type Table struct {
	head []string
	rows [][]cell
}

type cell struct {
	Text string
	// Color is the background of the cell on a page, or "" for none.
	Color string
	Right bool
}

// NewTable returns an empty table with the given column headings.
func NewTable(head ...string) *Table { return &Table{head: head} }

// Row adds a row. Missing cells at its end stay empty, and surplus cells are dropped.
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

// Rowf adds a row. Tabs in the format separate its cells, while tabs in the arguments do not:
// they are replaced like other control characters.
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

// Paint sets the background of a cell in the last row. It applies only to a page. The colour is
// written as in CSS, for example #e9a3a3.
func (t *Table) Paint(column int, color string) { t.rows[len(t.rows)-1][column].Color = color }

// isNumber reports whether a cell holds a number, possibly with a sign before it or a unit after
// it, or a placeholder such as - for a missing number.
func isNumber(text string) bool {
	digits := strings.TrimLeft(text, "+-~!<>±.")
	return digits == "" || digits[0] >= '0' && digits[0] <= '9'
}

// columns returns the headings, each with the alignment of its column.
func (t *Table) columns() []cell {
	columns := make([]cell, len(t.head))
	for c, text := range t.head {
		// The first column holds names even if they look like numbers.
		columns[c] = cell{Text: text, Right: c > 0}
		for _, row := range t.rows {
			columns[c].Right = columns[c].Right && row[c].Right
		}
	}
	return columns
}

// WriteText writes only the table, for a terminal.
func (t *Table) WriteText(w io.Writer) error {
	var b strings.Builder
	t.write(&b, 0)
	_, err := io.WriteString(w, b.String())
	return err
}

// gap separates the columns in text.
const gap = "  "

// write writes the table with at most most columns of text, or without a limit if most is 0.
// Lines have no trailing space.
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

// fitted returns the widths of the columns that fit into most. It first shortens the first
// column, which holds names, to no less than a fifth of most. Then it drops columns from the
// end.
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

// Numbers joins numbers by commas, "-" if there are none.
func Numbers(list []int) string {
	return cmp.Or(strings.ReplaceAll(strings.Trim(fmt.Sprint(list), "[]"), " ", ","), "-")
}

// OrDash formats a number, "-" if it is unknown.
func OrDash(format string, value float64) string {
	if value == 0 {
		return "-"
	}
	return fmt.Sprintf(format, value)
}

// Package report writes the results of commands that measure. A [Document] consists of
// headings, paragraphs, lists, [Table]s and [Chart]s. It is filled once and can be written as
// text for a terminal and as a self-contained HTML page. [WriteJSON] writes the same results
// for programs.
//
// Names in a document come from files and clients and are not trusted. Control characters are
// replaced, so that a name cannot move a terminal's cursor or add a line. On a page, text is
// escaped.
//
// The package is for commands only. Nothing that serves queries imports it.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
)

// Document is a report under construction. Its methods append to it.
type Document struct {
	// Title is the heading of the page. It is not shown on a terminal, where the user knows
	// which command is running.
	Title string

	// Label is shown first, apart from the rest, for example that a device is emulated.
	Label string

	// Width is the number of columns of the terminal, or 0 for no limit. Tables that are wider
	// have long names shortened and their last columns omitted.
	Width int

	blocks []block
}

// block is a part of a document: a heading, with its name in the list of sections and its
// anchor in the page, or exactly one of the other kinds.
type block struct {
	Heading, Name, Anchor string

	Text  string
	List  []string
	Table *Table
	Chart *Chart
	Fold  *fold
}

// fold is a part that the page shows on demand.
type fold struct {
	Summary string
	Inside  *Document
}

// Heading begins a section. The text before a colon becomes its name in the list of sections.
func (d *Document) Heading(format string, args ...any) {
	text := plain(fmt.Sprintf(format, args...))
	name, _, _ := strings.Cut(text, ":")
	anchor := strings.Join(strings.FieldsFunc(name, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }), "-")
	d.blocks = append(d.blocks, block{Heading: text, Name: name, Anchor: anchor})
}

// Text adds a paragraph.
func (d *Document) Text(format string, args ...any) {
	d.blocks = append(d.blocks, block{Text: plain(fmt.Sprintf(format, args...))})
}

// List adds items to the list at the end of the document, or begins a new list if the document
// does not end with one.
func (d *Document) List(items ...string) {
	for _, item := range items {
		if n := len(d.blocks); n == 0 || d.blocks[n-1].List == nil {
			d.blocks = append(d.blocks, block{})
		}
		last := &d.blocks[len(d.blocks)-1]
		last.List = append(last.List, plain(item))
	}
}

// Table adds a table unless it has no rows.
func (d *Document) Table(t *Table) {
	if len(t.rows) > 0 {
		d.blocks = append(d.blocks, block{Table: t})
	}
}

// Chart adds a chart to the page. It does not appear in text.
func (d *Document) Chart(c *Chart) { d.blocks = append(d.blocks, block{Chart: c}) }

// Fold adds details that the page shows on demand. They do not appear in text.
func (d *Document) Fold(summary string, details *Document) {
	d.blocks = append(d.blocks, block{Fold: &fold{summary, details}})
}

// WriteText writes the document for a terminal, without its title, charts and folds.
func (d *Document) WriteText(w io.Writer) error {
	var b strings.Builder
	if d.Label != "" {
		fmt.Fprintln(&b, plain(d.Label))
	}
	for _, part := range d.blocks {
		switch {
		case part.Heading != "":
			fmt.Fprintf(&b, "\n%s\n", part.Heading)
		case part.Text != "":
			fmt.Fprintln(&b, part.Text)
		case part.Table != nil:
			part.Table.write(&b, d.Width)
		}
		for _, item := range part.List {
			fmt.Fprintf(&b, "  %s\n", item)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Count returns a number with a noun, such as "1 round" or "2 rounds". The plural is formed with
// an s unless it is the second name.
func Count[N ~int | ~int64 | ~uint64](n N, names ...string) string {
	name := names[len(names)-1]
	switch {
	case n == 1:
		name = names[0]
	case len(names) == 1:
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}

// Frequent lists the positive counts with their names, the most frequent first.
func Frequent[N int64 | uint64](counts map[string]N) string {
	var each []string
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		if n := counts[name]; n > 0 {
			each = append(each, fmt.Sprintf("%s %d", name, n))
		}
	}
	return strings.Join(each, ", ")
}

// WriteJSON writes v, indented, as the JSON object that a command prints or saves.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// plain replaces characters that a terminal would interpret, including line feeds.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// Package report is what commands that measure write: a [Document] of headings,
// paragraphs, lists, tables and charts, filled once and written twice, as text
// for a terminal and as one HTML page that refers to nothing outside itself.
//
// Names in a document come from files and clients. Control characters in them
// are replaced, so that none can move a terminal's cursor or add a line, and on
// a page they are escaped.
//
// It is for commands and for what only commands use; nothing that serves
// queries imports it.
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
	// Title heads the page. A terminal does not show it: whoever runs a command
	// knows which one.
	Title string

	// Label is shown first and set apart, such as that a device is emulated.
	Label string

	// Width is how many columns the tables of a text may have, 0 for any number. Long names
	// are cut for it, and the last columns left out.
	Width int

	blocks []block
}

// block is a part of a document: a heading, with its name and the place of it
// in the page, or exactly one of the others.
type block struct {
	Heading, Name, Anchor string

	Text  string
	List  []string
	Table *Table
	Chart *Chart
	Fold  *fold
}

// fold is what a page shows on demand.
type fold struct {
	Summary string
	Inside  *Document
}

// Heading begins a section. What stands before a colon names it in the list of
// sections.
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

// List adds items to the list that ends the document, which it begins if need
// be.
func (d *Document) List(items ...string) {
	for _, item := range items {
		if n := len(d.blocks); n == 0 || d.blocks[n-1].List == nil {
			d.blocks = append(d.blocks, block{})
		}
		last := &d.blocks[len(d.blocks)-1]
		last.List = append(last.List, plain(item))
	}
}

// Table adds a table, and nothing if it has no rows.
func (d *Document) Table(t *Table) {
	if len(t.rows) > 0 {
		d.blocks = append(d.blocks, block{Table: t})
	}
}

// Chart adds a chart to the page. Text leaves it out.
func (d *Document) Chart(c *Chart) { d.blocks = append(d.blocks, block{Chart: c}) }

// Fold adds details that the page shows on demand. Text leaves them out.
func (d *Document) Fold(summary string, details *Document) {
	d.blocks = append(d.blocks, block{Fold: &fold{summary, details}})
}

// WriteText writes the document for a terminal.
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

// Count returns a number of things, as 1 round or 2 rounds. The name of several is that
// of one with an s unless it is given.
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

// Frequent lists counts above 0 by their names, the most frequent first.
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

// WriteJSON writes v as the one JSON object that a command prints or leaves.
func WriteJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// plain replaces what a terminal would not show as it is, line feeds too.
func plain(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

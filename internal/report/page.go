package report

import (
	_ "embed"
	"html/template"
	"io"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"columns": (*Table).columns,
	"rows":    func(t *Table) [][]cell { return t.rows },
	"blocks":  func(d *Document) []block { return d.blocks },
	"cards":   (*Document).cards,
	"legend":  (*Chart).legend,
	"svg":     (*Chart).svg,
}).Parse(pageText))

// WriteHTML writes the document as one page that includes its charts and loads nothing from
// elsewhere. The page is readable on a small screen, in dark mode, and without scripts.
func (d *Document) WriteHTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Document
		Sections []block
	}{d, d.sections()})
}

// cards groups the blocks: first those before the first heading, then each heading with the
// blocks of its section.
func (d *Document) cards() (list [][]block) {
	for i, b := range d.blocks {
		if i == 0 || b.Heading != "" {
			list = append(list, nil)
		}
		last := &list[len(list)-1]
		*last = append(*last, b)
	}
	return list
}

// fewestSections is the number of sections from which on a page gets a list of sections.
const fewestSections = 6

// sections returns the headings for the list of sections, or nil for a short page.
func (d *Document) sections() (list []block) {
	for _, b := range d.blocks {
		if b.Heading != "" {
			list = append(list, b)
		}
	}
	if len(list) < fewestSections {
		return nil
	}
	return list
}

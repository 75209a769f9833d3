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

// WriteHTML writes the document as one page, with its charts and nothing that
// is fetched from elsewhere. It is readable on a small screen, in the dark, and
// without scripts.
func (d *Document) WriteHTML(w io.Writer) error {
	return page.Execute(w, struct {
		*Document
		Sections []block
	}{d, d.sections()})
}

// cards are what stands before the first heading, and then each heading with what
// belongs to it.
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

// fewestSections is how many sections a page has to have to be worth a list of
// them.
const fewestSections = 6

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

package advice

import (
	"bytes"
	"fmt"
	"html/template"
	"io"
)

const (
	pageCell   = 56  // side of a cell, in pixels
	pageMargin = 150 // for names
	pageFade   = 0.6 // gain beyond 1 at which a cell has its full colour
)

// WritePage writes the advice as one HTML page without anything outside it: a
// heat map of what each two services gain, and the text.
func (a *Advice) WritePage(w io.Writer) error {
	var text bytes.Buffer
	if err := a.WriteText(&text); err != nil {
		return err
	}
	return advicePage.Execute(w, struct {
		Side   int
		Names  []pageText
		Cells  []pageField
		Text   string
		Device string
	}{pageMargin + pageCell*len(a.Services), a.pageNames(), a.pageCells(), text.String(), a.Device})
}

type pageText struct {
	X, Y, Column int
	Text         string
}

// pageField is a cell of the heat map.
type pageField struct {
	X, Y, TextX, TextY int
	Colour, Text, Tip  string
}

func (a *Advice) pageNames() (names []pageText) {
	for i, name := range a.Services {
		at := pageMargin + pageCell*i + pageCell/2
		names = append(names, pageText{X: pageMargin - 8, Y: at + 4, Column: at, Text: name})
	}
	return names
}

func (a *Advice) pageCells() (cells []pageField) {
	for i, row := range a.Pairs {
		for j, g := range row {
			f := pageField{X: pageMargin + pageCell*j, Y: pageMargin + pageCell*i, Colour: "#ddd"}
			f.TextX, f.TextY = f.X+pageCell/2, f.Y+pageCell/2+4
			if i != j {
				f.Colour, f.Text = g.colour(), g.cell(false)
				f.Tip = fmt.Sprintf("%s + %s: gain %.3f", a.Services[i], a.Services[j], g.Gain)
			}
			cells = append(cells, f)
		}
	}
	return cells
}

// colour is red up to a gain of 1 and then the greener the greater it is.
func (g PairGain) colour() string {
	if g.Bad || g.Gain <= 1 {
		return "#e9a3a3"
	}
	part := min((g.Gain-1)/pageFade, 1)
	fade := func(to int) int { return 255 - int(part*float64(255-to)) }
	return fmt.Sprintf("#%02x%02x%02x", fade(0x5f), fade(0xb3), fade(0x7a))
}

var advicePage = template.Must(template.New("advice").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>Which services gain by sharing a device</title>
<style>body{font:15px sans-serif;margin:2em}svg text{font-size:13px}pre{font-size:13px}</style></head><body>
<h1>Which services gain by sharing a device</h1>
{{with .Device}}<p>Measured on {{.}}.</p>{{end}}
<svg width="{{.Side}}" height="{{.Side}}" role="img" aria-label="gain of each two services">
{{range .Names}}<text x="{{.X}}" y="{{.Y}}" text-anchor="end">{{.Text}}</text>
<text transform="translate({{.Column}},140) rotate(-60)">{{.Text}}</text>
{{end}}{{range .Cells}}<g><rect x="{{.X}}" y="{{.Y}}" width="55" height="55" fill="{{.Colour}}"/><text x="{{.TextX}}" y="{{.TextY}}" text-anchor="middle">{{.Text}}</text>{{with .Tip}}<title>{{.}}</title>{{end}}</g>
{{end}}</svg>
<p>Green: overlapping pays. Red: it does not. ~ is estimated from what the models gain with others, ! should not share a device.</p>
<pre>{{.Text}}</pre>
</body></html>
`))

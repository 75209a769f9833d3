package reproduce

import (
	"fmt"
	"html"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Sizes of a chart, in units of its view box.
const (
	barWidth     = 8
	groupGap     = 14
	plotHeight   = 220
	leftMargin   = 60 // at least
	topMargin    = 12
	letter       = 6.2 // wide, about
	slanted      = 0.72
	bottomMargin = 30
	gridLines    = 5
)

// palette is told apart by the colour-blind too, on white and on black. The
// variants have its first colours, in their order.
var palette = []string{
	"#999999", "#e69f00", "#56b4e9", "#6e6e6e", "#a87400", "#2b7fb0", "#cc79a7", "#d55e00", "#009e73", "#0072b2",
	"#b39ddb", "#c9a48a", "#8f9d2a",
}

// chart is bars in groups, some with a mark for what others measured.
type chart struct {
	title  string
	groups []string
	series []string
	colors []string // by series
	value  func(group, series string) (ours, authors *float64)
	text   func(v float64) string
	tick   func(v float64) string // of the axis
	line   float64                // a level that matters, 0 for none
}

// leastScale is how far a chart shrinks before it is moved in its frame instead.
const leastScale = 0.8

// svg draws the chart, with a title for each bar, so that it can be read without
// colours too. Its lines and letters have the colour of the text around it.
func (c *chart) svg() string {
	top := nice(c.most())
	wide := len(c.series)*barWidth + groupGap
	slant := int(longest(c.groups) * letter * slanted)
	from := max(leftMargin, slant-wide/2)
	width := from + len(c.groups)*wide + groupGap
	height := topMargin + plotHeight + bottomMargin + slant

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" style="min-width:%.0fpx;max-width:%dpx" role="img" aria-label="%s" font-family="system-ui, sans-serif" font-size="12" fill="currentColor">`,
		width, height, leastScale*float64(width), width, html.EscapeString(c.title))
	y := func(v float64) float64 { return topMargin + plotHeight*(1-min(v, top)/top) }
	c.axis(&b, from, width, top, y)
	for g, group := range c.groups {
		left := from + groupGap/2 + g*wide
		for s, series := range c.series {
			c.bar(&b, left+s*barWidth, y, group, series, c.colors[s])
		}
		x, low := left+len(c.series)*barWidth/2, topMargin+plotHeight+12
		fmt.Fprintf(&b, `<text transform="translate(%d %d) rotate(-45)" text-anchor="end">%s</text>`, x+4, low, html.EscapeString(group))
	}
	b.WriteString("</svg>")
	return b.String()
}

func (c *chart) axis(b *strings.Builder, from, width int, top float64, y func(float64) float64) {
	for i := 0; i <= gridLines; i++ {
		v := top * float64(i) / gridLines
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="currentColor" stroke-opacity="0.15"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			from, y(v), width, from-6, y(v)+4, html.EscapeString(c.tick(v)))
	}
	if c.line > 0 && c.line <= top {
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#c33" stroke-dasharray="4 3"/>`, from, y(c.line), width)
	}
}

func (c *chart) bar(b *strings.Builder, x int, y func(float64) float64, group, series, color string) {
	ours, authors := c.value(group, series)
	if ours != nil {
		said := fmt.Sprintf("%s, %s: %s", group, series, c.text(*ours))
		if authors != nil {
			said += ", authors " + c.text(*authors)
		}
		height := max(topMargin+plotHeight-y(*ours), 0.5)
		fmt.Fprintf(b, `<rect x="%d" y="%.1f" width="%d" height="%.1f" fill="%s"><title>%s</title></rect>`,
			x, topMargin+plotHeight-height, barWidth-1, height, color, html.EscapeString(said))
	}
	if authors != nil {
		at := y(*authors)
		fmt.Fprintf(b, `<path d="M%d %.1fh%d" stroke="var(--paper)" stroke-width="4"/><path d="M%d %.1fh%d" stroke="currentColor" stroke-width="2"/>`,
			x-1, at, barWidth+1, x-1, at, barWidth+1)
	}
}

// longest is how many letters the longest of the names has.
func longest(names []string) float64 {
	most := 0
	for _, n := range names {
		most = max(most, utf8.RuneCountInString(n))
	}
	return float64(most)
}

func (c *chart) each(visit func(ours, authors *float64)) {
	for _, g := range c.groups {
		for _, s := range c.series {
			visit(c.value(g, s))
		}
	}
}

func (c *chart) marked() (any bool) {
	c.each(func(_, authors *float64) { any = any || authors != nil })
	return any
}

func (c *chart) most() float64 {
	most := 0.0
	c.each(func(ours, authors *float64) {
		for _, v := range []*float64{ours, authors} {
			if v != nil {
				most = max(most, *v)
			}
		}
	})
	return most
}

// nice returns the least of 1, 1.5, 2, 3, 4, 5, 6 and 8 times a power of ten
// that is not below v.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, step := range []float64{1, 1.5, 2, 3, 4, 5, 6, 8} {
		if step*power >= v {
			return step * power
		}
	}
	return 10 * power
}

// colorsOf gives policies their colours, wherever they stand, and what is no
// policy those that are left, as long as there are any.
func colorsOf(series []string) []string {
	colors := make([]string, len(series))
	left := slices.Clone(palette)
	for i, s := range series {
		if at := slices.IndexFunc(variants, func(v variant) bool { return v.name == s }); at >= 0 {
			colors[i] = palette[at]
			left = slices.DeleteFunc(left, func(c string) bool { return c == colors[i] })
		}
	}
	slices.Reverse(left)
	next := 0
	for i := range colors {
		if colors[i] == "" {
			colors[i] = left[next%len(left)]
			next++
		}
	}
	return colors
}

package report

import (
	"cmp"
	"fmt"
	"html"
	"html/template"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Chart is a drawing with two axes. It shows lines, dots and boxes over numbers, or bars over
// names.
type Chart struct {
	Caption string
	// X and Y name the quantities on the axes, with their units.
	X, Y string
	// Log makes both axes logarithmic and omits points that are not positive.
	Log bool

	// Groups names the positions on the X axis of a bar chart. If it is set, every series has
	// one bar per group.
	Groups []string

	Series []Series

	// Level is the height of a dashed horizontal line, and LevelName its meaning. Without a
	// name there is no line.
	Level     float64
	LevelName string

	// MarkName is the meaning of the marks on bars.
	MarkName string
}

// Series is a set of values that are drawn in one colour.
type Series struct {
	Name string
	// Color is an index into the palette.
	Color int
	// X is set for points only. Y has a value for each X, or for each group, and NaN where
	// there is none.
	X []float64
	Y []float64
	// Marks are reference values next to the bars, such as a paper's, and NaN where there is
	// none.
	Marks []float64
	// Dots draws points without joining them.
	Dots bool

	// Boxes are drawn instead of a line. Each has a left, bottom, right and top.
	Boxes [][4]float64
}

// palette can be distinguished by people with colour blindness. The strongest colours are first.
var palette = []string{
	"#0072B2", "#D55E00", "#009E73", "#CC79A7", "#2B7FB0", "#A87400", "#6E6E6E", "#56B4E9", "#E69F00", "#999999", "#B39DDB", "#C9A48A", "#8F9D2A",
}

func (s *Series) color() string { return palette[s.Color%len(palette)] }

// legendEntry is a name with its colour, or with the CSS class of its symbol.
type legendEntry struct{ Name, Color, Class string }

// legend returns the entries of the legend. It is part of the page, not of the drawing, so that
// it stays in view while a wide drawing is scrolled.
func (c *Chart) legend() (list []legendEntry) {
	for i := range c.Series {
		list = append(list, legendEntry{Name: c.Series[i].Name, Color: strings.ToLower(c.Series[i].color())})
	}
	if c.MarkName != "" {
		list = append(list, legendEntry{Name: c.MarkName, Class: "mark"})
	}
	if c.LevelName != "" {
		list = append(list, legendEntry{Name: c.LevelName, Class: "level"})
	}
	return list
}

// The sizes of drawings, in points.
const (
	centimeter = 72 / 2.54
	height     = 9 * centimeter
	width      = 16 * centimeter
	// rowWidth is the greatest width of a row of bars. The page has room for 34 cm.
	rowWidth = 32 * centimeter
	axisRoom = 2 * centimeter
	// fileLegend is the width of the legend in a file.
	fileLegend = 6 * centimeter
	barWidth   = 0.17 * centimeter
	// barGap is the space between groups, in bar widths.
	barGap = 1.5

	// margin is the space around a drawing and between an axis and its labels, and letter about the
	// size of a letter.
	margin = 6
	letter = 10
)

// svg draws the chart as SVG elements of a page. A bar chart that is wider than the page becomes
// several rows. Names are escaped.
func (c *Chart) svg() template.HTML {
	var b strings.Builder
	// The colours are those of the page, which may be dark.
	d := drawing{Builder: &b, chart: c, ink: "currentColor", paper: "var(--card)"}
	groups := len(c.Groups)
	if groups == 0 {
		d.begin(width, width)
		d.lines()
		d.end()
		return template.HTML(b.String())
	}
	group := barWidth * (float64(len(c.Series)) + barGap)
	most := max(int((rowWidth-axisRoom)/group), 1)
	rows := (groups + most - 1) / most
	each := (groups + rows - 1) / rows
	for from := 0; from < groups; from += each {
		to := min(from+each, groups)
		wide := axisRoom + group*float64(to-from)
		d.begin(wide, wide)
		d.bars(from, to)
		d.end()
	}
	return template.HTML(b.String())
}

// File returns a chart of lines as an SVG file, on white and with the legend on the right.
func (c *Chart) File() []byte {
	var b strings.Builder
	d := drawing{Builder: &b, chart: c, ink: "#000000", paper: "#FFFFFF"}
	b.WriteString("<?xml version=\"1.0\"?>\n")
	d.begin(width+fileLegend, width)
	d.box(0, 0, width+fileLegend, height, d.paper)
	d.lines()
	for i := range c.Series {
		at := margin + letter*1.5*float64(i+1)
		d.path(fmt.Sprintf("M%.2f,%.2fL%.2f,%.2f", width+margin, at-letter/3, width+margin+2*letter, at-letter/3), c.Series[i].color(), 1.5)
		d.text(width+2*margin+2*letter, at, "start", 0, c.Series[i].Name)
	}
	d.end()
	return []byte(b.String())
}

// drawing is a chart that is being drawn.
type drawing struct {
	*strings.Builder
	chart      *Chart
	ink, paper string
	wide       float64 // of axes and their labels
	x, y       axis
}

// begin begins an element of a width, of which the chart takes wide.
func (d *drawing) begin(all, wide float64) {
	d.wide = wide
	fmt.Fprintf(d, `<svg width="%.2fpt" height="%.2fpt" viewBox="0 0 %.2[1]f %.2[2]f" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="%[3]d">`+"\n", all, float64(height), letter)
}

func (d *drawing) end() { d.WriteString("</svg>\n") }

func (d *drawing) path(points, color string, thick float64) {
	fmt.Fprintf(d, `<path d="%s" style="fill:none;stroke:%s;stroke-width:%g"/>`+"\n", points, color, thick)
}

func (d *drawing) box(left, top, right, bottom float64, color string) {
	fmt.Fprintf(d, `<path d="M%.2f,%.2fH%.2fV%.2fH%.2[1]fZ" style="fill:%[5]s"/>`+"\n", left, top, right, bottom, color)
}

// text writes at a place, turned by degrees around it.
func (d *drawing) text(x, y float64, anchor string, turn int, text string) {
	fmt.Fprintf(d, `<text x="%.2f" y="%.2f" text-anchor="%s" fill="%s"`, x, y, anchor, d.ink)
	if turn != 0 {
		fmt.Fprintf(d, ` transform="rotate(%d %.2f %.2f)"`, turn, x, y)
	}
	fmt.Fprintf(d, ">%s</text>\n", html.EscapeString(text))
}

// axis is the range of an axis and its place in the drawing.
type axis struct {
	min, max float64
	from, to float64
	log      bool
	ticks    []tick
}

// tick is a value with a grid line. Without a label it is one between two powers of ten.
type tick struct {
	value float64
	label string
}

// at returns the place of a value.
func (a *axis) at(v float64) float64 {
	low, high := a.min, a.max
	if a.log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// mark places ticks at about five round numbers.
func (a *axis) mark() {
	step := math.Pow10(int(math.Floor(math.Log10((a.max - a.min) / 5))))
	for _, more := range []float64{2, 2.5, 2} {
		if (a.max-a.min)/step > 7 {
			step *= more
		}
	}
	digits := max(-int(math.Floor(math.Log10(step)+1e-9)), 0)
	if scaled := step * math.Pow10(digits); math.Abs(scaled-math.Round(scaled)) > 1e-6 {
		digits++
	}
	// Adding 0 makes -0 a number without a sign.
	for n := math.Ceil(a.min/step-1e-9) + 0; n*step <= a.max+step*1e-9; n++ {
		label := strconv.FormatFloat(n*step, 'f', digits, 64)
		if math.Abs(a.max) >= 1e6 {
			label = fmt.Sprintf("%.4g", n*step)
		}
		a.ticks = append(a.ticks, tick{n * step, label})
	}
}

// decades widens the axis to powers of ten, which alone have labels.
func (a *axis) decades() {
	first := int(math.Floor(math.Log10(a.min)))
	last := max(int(math.Ceil(math.Log10(a.max))), first+1)
	a.min, a.max, a.log = math.Pow10(first), math.Pow10(last), true
	for power := first; power <= last; power++ {
		a.ticks = append(a.ticks, tick{math.Pow10(power), fmt.Sprintf("%g", math.Pow10(power))})
		for i := 2.0; i < 10 && power < last; i++ {
			a.ticks = append(a.ticks, tick{value: i * math.Pow10(power)})
		}
	}
}

// leastRange is the least range of the Y axis as a fraction of the largest value. Without it,
// values that differ by less than one percent would fill the height of the chart.
const leastRange = 0.01

// lines draws axes over numbers, and the points, lines and boxes of all series.
func (d *drawing) lines() {
	c := d.chart
	d.x, d.y = axis{min: math.Inf(1), max: math.Inf(-1)}, axis{min: math.Inf(1), max: math.Inf(-1)}
	cover := func(a *axis, values ...float64) {
		for _, v := range values {
			a.min, a.max = min(a.min, v), max(a.max, v)
		}
	}
	drawn := func(s *Series, k int) bool {
		return !math.IsNaN(s.X[k]) && !math.IsNaN(s.Y[k]) && (!c.Log || s.X[k] > 0 && s.Y[k] > 0)
	}
	for i := range c.Series {
		s := &c.Series[i]
		for k := range s.X {
			if drawn(s, k) {
				cover(&d.x, s.X[k])
				cover(&d.y, s.Y[k])
			}
		}
		for _, b := range s.Boxes {
			cover(&d.x, b[0], b[2])
			cover(&d.y, b[1], b[3])
		}
	}
	d.scale(&d.x)
	d.scale(&d.y)
	d.axes(d.longest(d.x.ticks[len(d.x.ticks)-1:]), 0)
	for i := range c.Series {
		s := &c.Series[i]
		for _, b := range s.Boxes {
			d.box(d.x.at(b[0]), d.y.at(b[3]), d.x.at(b[2]), d.y.at(b[1]), s.color())
		}
		var line strings.Builder
		for k := range s.X {
			if !drawn(s, k) {
				continue
			}
			x, y := d.x.at(s.X[k]), d.y.at(s.Y[k])
			if s.Dots {
				fmt.Fprintf(d, `<circle cx="%.2f" cy="%.2f" r="1" fill="%s"/>`+"\n", x, y, s.color())
			} else {
				fmt.Fprintf(&line, "%c%.2f,%.2f", "ML"[min(line.Len(), 1)], x, y)
			}
		}
		if line.Len() > 0 {
			d.path(line.String(), s.color(), 1.5)
		}
	}
}

// scale completes the range of an axis over numbers, and places its ticks.
func (d *drawing) scale(a *axis) {
	switch {
	case a.min > a.max: // nothing is drawn
		a.min, a.max = 0, 1
	case d.chart.Log && a.min > 0:
		a.decades()
		return
	case a.min == 0 && a.max == 0:
		a.max = 1
	}
	if middle, room := (a.max+a.min)/2, leastRange*max(math.Abs(a.max), math.Abs(a.min)); a.max-a.min < room {
		a.min, a.max = middle-room/2, middle+room/2
	}
	a.mark()
}

// bars draws the series side by side for the groups [from, to). Bars start at 0, and all rows of a
// chart have the same height, so that they can be compared.
func (d *drawing) bars(from, to int) {
	c := d.chart
	highest := 0.0
	for _, s := range c.Series {
		for _, values := range [][]float64{s.Y, s.Marks} {
			for _, v := range values {
				// A comparison with NaN is false.
				if v > highest {
					highest = v
				}
			}
		}
	}
	d.x, d.y = axis{min: -0.5, max: float64(to-from) - 0.5}, axis{max: cmp.Or(highest, 1)}
	d.y.mark()
	for g := from; g < to; g++ {
		d.x.ticks = append(d.x.ticks, tick{float64(g - from), c.Groups[g]})
	}
	longest := 0.0
	for _, g := range c.Groups { // of all rows, which are as high
		longest = max(longest, float64(utf8.RuneCountInString(g)))
	}
	d.axes(0, longest)
	wide := (d.x.at(1) - d.x.at(0)) / (float64(len(c.Series)) + barGap)
	for i := range c.Series {
		s := &c.Series[i]
		for g := from; g < to; g++ {
			left := d.x.at(float64(g-from)) + wide*(float64(i)-float64(len(c.Series))/2)
			right := left + wide*0.9
			if g < len(s.Y) && !math.IsNaN(s.Y[g]) {
				d.box(left, d.y.at(s.Y[g]), right, d.y.at(0), s.color())
			}
			if g < len(s.Marks) && !math.IsNaN(s.Marks[g]) {
				at := fmt.Sprintf("M%.2f,%.2fH%.2f", left, d.y.at(s.Marks[g]), right)
				// The outline keeps the mark visible on a dark bar.
				d.path(at, d.paper, 3)
				d.path(at, d.ink, 1.5)
			}
		}
	}
}

// longest returns the length of the longest label.
func (d *drawing) longest(ticks []tick) (letters float64) {
	for _, t := range ticks {
		letters = max(letters, float64(utf8.RuneCountInString(t.label)))
	}
	return letters
}

// axes places the axes, and draws them with grid, labels and level. ahead is the length of the last
// label on the X axis, which reaches beyond it. Names of groups, of which the longest has so many
// letters, are written at an angle.
func (d *drawing) axes(ahead, longest float64) {
	const slant = 45
	c := d.chart
	below := float64(2*margin + letter)
	if longest > 0 {
		below = margin + letter + longest*letter*0.55*math.Sin(slant*math.Pi/180)
	}
	if c.X != "" {
		below += letter + margin
	}
	left := margin + letter*0.6*d.longest(d.y.ticks) + margin
	if c.Y != "" {
		left += letter + margin
	}
	d.x.from, d.x.to = left, d.wide-margin-ahead*letter*0.3
	d.y.from, d.y.to = height-below, margin+letter/2
	for _, t := range d.y.ticks {
		at := d.y.at(t.value)
		d.grid(fmt.Sprintf("M%.2f,%.2fH%.2f", d.x.from, at, d.x.to))
		d.text(d.x.from-margin, at+letter/3, "end", 0, t.label)
	}
	for _, t := range d.x.ticks {
		at := d.x.at(t.value)
		if longest > 0 {
			d.text(at+letter/3, d.y.from+letter, "end", -slant, t.label)
			continue
		}
		d.grid(fmt.Sprintf("M%.2f,%.2fV%.2f", at, d.y.from, d.y.to))
		d.text(at, d.y.from+margin+letter, "middle", 0, t.label)
	}
	d.path(fmt.Sprintf("M%.2f,%.2fV%.2fH%.2f", d.x.from, d.y.to, d.y.from, d.x.to), d.ink, 1)
	if c.X != "" {
		d.text((d.x.from+d.x.to)/2, height-margin, "middle", 0, c.X)
	}
	if c.Y != "" {
		d.text(margin+letter, (d.y.from+d.y.to)/2, "middle", -90, c.Y)
	}
	if c.LevelName != "" && c.Level >= d.y.min && c.Level <= d.y.max {
		fmt.Fprintf(d, `<path d="M%.2f,%.2fH%.2f" style="fill:none;stroke:#CC3333;stroke-dasharray:4,3"/>`+"\n", d.x.from, d.y.at(c.Level), d.x.to)
	}
}

func (d *drawing) grid(path string) {
	fmt.Fprintf(d, `<path d="%s" style="fill:none;stroke:%s;stroke-opacity:0.15;stroke-width:0.5"/>`+"\n", path, d.ink)
}

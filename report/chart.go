package report

import (
	"bytes"
	"cmp"
	"fmt"
	"html/template"
	"image/color"
	"math"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a drawing with two axes: lines, dots and boxes over numbers, or bars
// over names.
type Chart struct {
	Caption string
	X, Y    string // what the axes show, with the unit
	Log     bool   // both axes are logarithmic; what is not above 0 is left out

	// Groups name places on the X axis. With them, every series is bars, one at
	// each group.
	Groups []string

	Series []Series

	// Level is where a dashed line runs across, and LevelName what it means; a
	// chart without a name has no such line.
	Level     float64
	LevelName string

	// MarkName is what the marks on bars mean.
	MarkName string
}

// Series is numbers of one kind, drawn in one colour.
type Series struct {
	Name  string
	Color int       // a position in the palette
	X     []float64 // points only
	Y     []float64 // one for each X, or for each group, NaN where there is none
	Marks []float64 // others' values beside bars, NaN where there is none
	Dots  bool      // points are not joined

	// Boxes are filled instead of a line: the left, bottom, right and top of each.
	Boxes [][4]float64
}

// palette is told apart by the colour-blind too. The first are the strongest.
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0x2b, 0x7f, 0xb0, 0xff}, {0xa8, 0x74, 0x00, 0xff}, {0x6e, 0x6e, 0x6e, 0xff}, {0x56, 0xb4, 0xe9, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0x99, 0x99, 0x99, 0xff}, {0xb3, 0x9d, 0xdb, 0xff}, {0xc9, 0xa4, 0x8a, 0xff},
	{0x8f, 0x9d, 0x2a, 0xff},
}

// Labels are written as the page around them is.
func init() { plot.DefaultFont.Variant = "Sans" }

func (s *Series) color() color.RGBA { return palette[s.Color%len(palette)] }

// legendEntry is a name with its colour, or with the class of what stands for it.
type legendEntry struct{ Name, Color, Class string }

// legend is written apart from the drawing, so that it stays in sight while a
// wide one is moved.
func (c *Chart) legend() (list []legendEntry) {
	for i := range c.Series {
		k := c.Series[i].color()
		list = append(list, legendEntry{Name: c.Series[i].Name, Color: fmt.Sprintf("#%02x%02x%02x", k.R, k.G, k.B)})
	}
	if c.MarkName != "" {
		list = append(list, legendEntry{Name: c.MarkName, Class: "mark"})
	}
	if c.LevelName != "" {
		list = append(list, legendEntry{Name: c.LevelName, Class: "level"})
	}
	return list
}

// Sizes of drawings.
const (
	height   = 9 * vg.Centimeter
	width    = 16 * vg.Centimeter
	rowWidth = 32 * vg.Centimeter // of bars at most: the page has room for 34
	axisRoom = 2 * vg.Centimeter
	barWidth = 0.17 * vg.Centimeter
	barGap   = 1.5 // between groups, in bars
)

// svg draws the chart as elements of a page: one, or as many rows of bars as it takes not to
// be wider than the page. Names in it are escaped.
func (c *Chart) svg() (template.HTML, error) {
	groups := len(c.Groups)
	if groups == 0 {
		p := c.plot()
		if err := c.lines(p); err != nil {
			return "", err
		}
		return c.element(p, width)
	}
	group := barWidth * vg.Length(float64(len(c.Series))+barGap)
	most := max(int((rowWidth-axisRoom)/group), 1)
	rows := (groups + most - 1) / most
	each := (groups + rows - 1) / rows
	var all template.HTML
	for from := 0; from < groups; from += each {
		b := bars{c, from, min(from+each, groups)}
		p := c.plot()
		c.nominal(p, c.Groups[b.from:b.to])
		p.Add(b)
		row, err := c.element(p, axisRoom+group*vg.Length(b.to-b.from))
		if err != nil {
			return "", err
		}
		all += row
	}
	return all, nil
}

// plot returns a drawing without anything but its axes.
func (c *Chart) plot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil // that of the page
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	grid := plotter.NewGrid()
	if len(c.Groups) > 0 {
		grid.Vertical.Width = 0
	}
	p.Add(grid)
	return p
}

// element writes a drawing of that width as an element of a page.
func (c *Chart) element(p *plot.Plot, wide vg.Length) (template.HTML, error) {
	if c.LevelName != "" {
		p.Add(level(c.Level))
	}
	canvas := vgsvg.New(wide, height)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	// What stands before the element is for a file of its own.
	return template.HTML(pageColors.Replace(b.String()[max(strings.Index(b.String(), "<svg"), 0):])), nil
}

// pageColors takes black and white from the page, which may be dark.
var pageColors = strings.NewReplacer(":#000000", ":currentColor", ":#FFFFFF", ":var(--card)")

// nominal writes the names of the groups aslant below the axis.
func (c *Chart) nominal(p *plot.Plot, groups []string) {
	p.NominalX(groups...)
	p.X.Tick.Label.Rotation = math.Pi / 4
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YCenter
	p.X.Tick.Label.Font.Size = font.Length(9)
}

func (c *Chart) lines(p *plot.Plot) error {
	for i := range c.Series {
		s := &c.Series[i]
		if s.X == nil {
			p.Add(boxes{s})
			continue
		}
		points := make(plotter.XYs, 0, len(s.X))
		for k := range s.X {
			if !c.Log || s.X[k] > 0 && s.Y[k] > 0 {
				points = append(points, plotter.XY{X: s.X[k], Y: s.Y[k]})
			}
		}
		if len(points) == 0 && c.Log {
			continue
		}
		line, dots, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		if s.Dots {
			dots.GlyphStyle = draw.GlyphStyle{Color: s.color(), Radius: vg.Points(1), Shape: draw.CircleGlyph{}}
			p.Add(dots)
			continue
		}
		line.LineStyle = draw.LineStyle{Color: s.color(), Width: vg.Points(1.5)}
		p.Add(line)
	}
	if c.Log && p.X.Min > 0 && p.X.Min <= p.X.Max && p.Y.Min > 0 && p.Y.Min <= p.Y.Max {
		for _, axis := range []*plot.Axis{&p.X, &p.Y} {
			first := int(math.Floor(math.Log10(axis.Min)))
			last := max(int(math.Ceil(math.Log10(axis.Max))), first+1)
			axis.Min, axis.Max = math.Pow10(first), math.Pow10(last)
			axis.Scale, axis.Tick.Marker = plot.LogScale{}, decades(first, last)
		}
		return nil
	}
	if p.Y.Min == 0 && p.Y.Max == 0 {
		p.Y.Max = 1
	}
	if middle, room := (p.Y.Max+p.Y.Min)/2, leastRange*max(math.Abs(p.Y.Max), math.Abs(p.Y.Min)); p.Y.Max-p.Y.Min < room {
		p.Y.Min, p.Y.Max = middle-room/2, middle+room/2
	}
	return nil
}

// decades are ticks from one power of ten to another, each with its number.
func decades(first, last int) plot.ConstantTicks {
	ticks := plot.ConstantTicks{}
	for power := first; power < last; power++ {
		ticks = append(ticks, plot.Tick{Value: math.Pow10(power), Label: fmt.Sprintf("%g", math.Pow10(power))})
		for i := 2.0; i < 10; i++ {
			ticks = append(ticks, plot.Tick{Value: i * math.Pow10(power)})
		}
	}
	return append(ticks, plot.Tick{Value: math.Pow10(last), Label: fmt.Sprintf("%g", math.Pow10(last))})
}

// leastRange is the part of the largest value that an axis spans at least: what differs by
// less looks constant, instead of falling from the top of the chart to its bottom.
const leastRange = 0.01

// bars draws the series of a chart side by side at each of its groups [from, to).
type bars struct {
	*Chart
	from, to int
}

// DataRange implements plot.DataRanger. Bars begin at 0, and end in all rows of a chart at
// the same value.
func (b bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, s := range b.Series {
		for _, values := range [][]float64{s.Y, s.Marks} {
			for _, v := range values {
				if v > ymax { // NaN is not
					ymax = v
				}
			}
		}
	}
	return -0.5, float64(b.to-b.from) - 0.5, 0, cmp.Or(ymax, 1)
}

// Plot implements plot.Plotter.
func (b bars) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	wide := (x(1) - x(0)) / vg.Length(float64(len(b.Series))+barGap)
	for i := range b.Series {
		s := &b.Series[i]
		for g := b.from; g < b.to; g++ {
			left := x(float64(g-b.from)) + wide*(vg.Length(i)-vg.Length(len(b.Series))/2)
			right := left + wide*0.9
			if g < len(s.Y) && !math.IsNaN(s.Y[g]) {
				top := y(s.Y[g])
				canvas.FillPolygon(s.color(), []vg.Point{{X: left, Y: y(0)}, {X: left, Y: top}, {X: right, Y: top}, {X: right, Y: y(0)}})
			}
			if g < len(s.Marks) && !math.IsNaN(s.Marks[g]) {
				at := y(s.Marks[g])
				canvas.StrokeLine2(draw.LineStyle{Color: color.White, Width: vg.Points(3)}, left, at, right, at)
				canvas.StrokeLine2(draw.LineStyle{Color: color.Black, Width: vg.Points(1.5)}, left, at, right, at)
			}
		}
	}
}

// boxes draws the boxes of a series.
type boxes struct{ *Series }

// DataRange implements plot.DataRanger.
func (s boxes) DataRange() (xmin, xmax, ymin, ymax float64) {
	xmin, xmax, ymin, ymax = math.Inf(1), math.Inf(-1), math.Inf(1), math.Inf(-1)
	for _, b := range s.Boxes {
		xmin, ymin, xmax, ymax = min(xmin, b[0]), min(ymin, b[1]), max(xmax, b[2]), max(ymax, b[3])
	}
	return xmin, xmax, ymin, ymax
}

// Plot implements plot.Plotter.
func (s boxes) Plot(canvas draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&canvas)
	for _, b := range s.Boxes {
		canvas.FillPolygon(s.color(), []vg.Point{{X: x(b[0]), Y: y(b[1])}, {X: x(b[0]), Y: y(b[3])}, {X: x(b[2]), Y: y(b[3])}, {X: x(b[2]), Y: y(b[1])}})
	}
}

// level is a dashed line across a chart, where it is within.
type level float64

// Plot implements plot.Plotter.
func (l level) Plot(canvas draw.Canvas, p *plot.Plot) {
	if at := float64(l); at >= p.Y.Min && at <= p.Y.Max {
		_, y := p.Transforms(&canvas)
		dashed := draw.LineStyle{Color: color.RGBA{R: 0xcc, G: 0x33, B: 0x33, A: 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}
		canvas.StrokeLine2(dashed, canvas.Min.X, y(at), canvas.Max.X, y(at))
	}
}

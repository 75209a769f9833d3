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
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 0xff}, {0xd5, 0x5e, 0x00, 0xff}, {0x00, 0x9e, 0x73, 0xff}, {0xcc, 0x79, 0xa7, 0xff},
	{0x2b, 0x7f, 0xb0, 0xff}, {0xa8, 0x74, 0x00, 0xff}, {0x6e, 0x6e, 0x6e, 0xff}, {0x56, 0xb4, 0xe9, 0xff},
	{0xe6, 0x9f, 0x00, 0xff}, {0x99, 0x99, 0x99, 0xff}, {0xb3, 0x9d, 0xdb, 0xff}, {0xc9, 0xa4, 0x8a, 0xff},
	{0x8f, 0x9d, 0x2a, 0xff},
}

// Labels use a sans-serif font like the page around them.
func init() { plot.DefaultFont.Variant = "Sans" }

func (s *Series) color() color.RGBA { return palette[s.Color%len(palette)] }

// legendEntry is a name with its colour, or with the CSS class of its symbol.
type legendEntry struct{ Name, Color, Class string }

// legend returns the entries of the legend. It is part of the page, not of the drawing, so that
// it stays in view while a wide drawing is scrolled.
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

// The sizes of drawings.
const (
	height = 9 * vg.Centimeter
	width  = 16 * vg.Centimeter
	// rowWidth is the greatest width of a row of bars. The page has room for 34 cm.
	rowWidth = 32 * vg.Centimeter
	axisRoom = 2 * vg.Centimeter
	// fileLegend is the width of the legend in a file.
	fileLegend = 6 * vg.Centimeter
	barWidth   = 0.17 * vg.Centimeter
	// barGap is the space between groups, in bar widths.
	barGap = 1.5
)

// svg draws the chart as SVG elements of a page. A bar chart that is wider than the page becomes
// several rows. Names are escaped.
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

// File returns a chart of lines as an SVG file, on white and with the legend on the right.
func (c *Chart) File() ([]byte, error) {
	p := c.plot()
	p.BackgroundColor = color.White
	if err := c.lines(p); err != nil {
		return nil, err
	}
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	for i := range c.Series {
		legend.Add(c.Series[i].Name, &plotter.Line{LineStyle: draw.LineStyle{Color: c.Series[i].color(), Width: vg.Points(1.5)}})
	}
	canvas := vgsvg.New(width+fileLegend, height)
	all := draw.New(canvas)
	all.FillPolygon(color.White, []vg.Point{{}, {X: all.Max.X}, all.Max, {Y: all.Max.Y}})
	legend.Draw(draw.Crop(all, width, 0, 0, 0))
	p.Draw(draw.Crop(all, 0, -fileLegend-vg.Centimeter/2, 0, 0))
	var b bytes.Buffer
	_, err := canvas.WriteTo(&b)
	return b.Bytes(), err
}

// plot returns a drawing with axes and a grid but no data.
func (c *Chart) plot() *plot.Plot {
	p := plot.New()
	// The background is that of the page.
	p.BackgroundColor = nil
	p.X.Label.Text, p.Y.Label.Text = c.X, c.Y
	grid := plotter.NewGrid()
	if len(c.Groups) > 0 {
		grid.Vertical.Width = 0
	}
	p.Add(grid)
	return p
}

// element renders a drawing of the given width as an element of a page.
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
	// The XML declaration before the element is only for files.
	return template.HTML(pageColors.Replace(b.String()[max(strings.Index(b.String(), "<svg"), 0):])), nil
}

// pageColors replaces black and white by the colours of the page, which may be dark.
var pageColors = strings.NewReplacer(":#000000", ":currentColor", ":#FFFFFF", ":var(--card)")

// nominal writes the names of the groups below the axis at an angle.
func (c *Chart) nominal(p *plot.Plot, groups []string) {
	p.NominalX(groups...)
	p.X.Tick.Label.Rotation = math.Pi / 4
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XRight, draw.YCenter
	p.X.Tick.Label.Font.Size = font.Length(9)
}

// lines adds the points, lines and boxes of all series, and sets the ranges of the axes.
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
		// A logarithmic chart may have lost all points of a series; an empty line is an error.
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

// decades returns ticks between two powers of ten. Only the powers have labels.
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

// leastRange is the least range of the Y axis as a fraction of the largest value. Without it,
// values that differ by less than one percent would fill the height of the chart.
const leastRange = 0.01

// bars draws the series of a chart side by side for the groups [from, to).
type bars struct {
	*Chart
	from, to int
}

// DataRange implements plot.DataRanger. Bars start at 0, and all rows of a chart have the same
// height, so that they can be compared.
func (b bars) DataRange() (xmin, xmax, ymin, ymax float64) {
	for _, s := range b.Series {
		for _, values := range [][]float64{s.Y, s.Marks} {
			for _, v := range values {
				// A comparison with NaN is false.
				if v > ymax {
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
				// The white outline keeps the mark visible on a dark bar.
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

// level is a dashed line across a chart, drawn if it is within the range of the Y axis.
type level float64

// Plot implements plot.Plotter.
func (l level) Plot(canvas draw.Canvas, p *plot.Plot) {
	if at := float64(l); at >= p.Y.Min && at <= p.Y.Max {
		_, y := p.Transforms(&canvas)
		dashed := draw.LineStyle{Color: color.RGBA{R: 0xcc, G: 0x33, B: 0x33, A: 0xff}, Width: vg.Points(1), Dashes: []vg.Length{vg.Points(4), vg.Points(3)}}
		canvas.StrokeLine2(dashed, canvas.Min.X, y(at), canvas.Max.X, y(at))
	}
}

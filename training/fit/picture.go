package fit

import (
	"bytes"
	"image/color"
	"math"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Limits of a picture.
const (
	maxDots     = 2500 // every so manieth row is drawn, so that a page stays small
	curvePoints = 200
	mostOff     = 60.0 // percent, where the curves of errors end
)

const (
	pictureWidth  = 16 * vg.Centimeter
	pictureHeight = 12 * vg.Centimeter
)

// colors of the techniques, told apart by the colour-blind too.
var colors = []color.RGBA{
	{R: 0x00, G: 0x72, B: 0xb2, A: 0xff}, {R: 0xd5, G: 0x5e, B: 0x00, A: 0xff},
	{R: 0x00, G: 0x9e, B: 0x73, A: 0xff}, {R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
}

// svg draws a plot as an element of a page.
func svg(p *plot.Plot) (string, error) {
	canvas := vgsvg.New(pictureWidth, pictureHeight)
	p.Draw(draw.New(canvas))
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return "", err
	}
	// What stands before is for a file of its own.
	return string(b.Bytes()[max(bytes.Index(b.Bytes(), []byte("<svg")), 0):]), nil
}

// scatter draws predicted over measured latencies.
func scatter(tested []point) (string, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "measured, ms", "predicted, ms"
	p.Add(plotter.NewGrid())
	var dots plotter.XYs
	most := 0.0
	for i := 0; i < len(tested); i += max(1, (len(tested)+maxDots-1)/maxDots) {
		t := tested[i]
		dots = append(dots, plotter.XY{X: t.measured / microsPerMilli, Y: t.predicted / microsPerMilli})
		most = max(most, t.measured/microsPerMilli)
	}
	s, err := plotter.NewScatter(dots)
	if err != nil {
		return "", err
	}
	s.Color = colors[0]
	s.Radius = vg.Points(1)
	s.Shape = draw.CircleGlyph{}
	same, err := plotter.NewLine(plotter.XYs{{}, {X: most, Y: most}})
	if err != nil {
		return "", err
	}
	p.Add(s, same)
	return svg(p)
}

// curves draws, by technique, which part of the rows is off by at most how
// much.
func (r *Report) curves() (string, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "off by at most, percent", "part of the rows kept aside, percent"
	p.Y.Min, p.Y.Max = 0, 100
	p.Legend.Left = false
	p.Add(plotter.NewGrid())
	for i, t := range r.Techniques {
		line, err := plotter.NewLine(curve(r.tested[t.Name]))
		if err != nil {
			return "", err
		}
		line.Color = colors[i%len(colors)]
		line.Width = vg.Points(1.5)
		p.Add(line)
		p.Legend.Add(t.Name, line)
	}
	return svg(p)
}

func curve(tested []point) plotter.XYs {
	off := make([]float64, len(tested))
	for i, t := range tested {
		off[i] = 100 * t.off()
	}
	slices.Sort(off)
	line := make(plotter.XYs, curvePoints+1)
	for i := range line {
		x := mostOff * float64(i) / curvePoints
		within, _ := slices.BinarySearch(off, math.Nextafter(x, math.Inf(1)))
		line[i] = plotter.XY{X: x, Y: 100 * float64(within) / float64(max(len(off), 1))}
	}
	return line
}

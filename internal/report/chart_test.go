package report

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func drawn(t *testing.T, c *Chart) string {
	t.Helper()
	return string(c.svg())
}

// numbers returns what a pattern finds in a drawing.
func numbers(t *testing.T, drawing, pattern string) (list []float64) {
	t.Helper()
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(drawing, -1) {
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, v)
	}
	return list
}

// TestManyBarsFitThePage draws more bars than a page of 1,400 px is wide: they take several
// rows with the same axis, and nothing is cut.
func TestManyBarsFitThePage(t *testing.T) {
	c := &Chart{Y: "ms"}
	for g := range 60 {
		c.Groups = append(c.Groups, fmt.Sprintf("group%02d", g))
	}
	for s := range 8 {
		values := make([]float64, len(c.Groups))
		for g := range values {
			values[g] = float64(1 + g)
		}
		c.Series = append(c.Series, Series{Name: fmt.Sprint(s), Color: s, Y: values, Marks: values})
	}
	drawing := drawn(t, c)
	const card = 1400 - 2*24 - 2*17 // px, within the paddings of page.html
	rows := numbers(t, drawing, `<svg width="([0-9.]+)pt"`)
	if len(rows) < 2 {
		t.Errorf("%d rows", len(rows))
	}
	for _, points := range rows {
		if px := points * 96 / 72; px > card {
			t.Errorf("a row is %.0f px wide, the page has room for %d", px, card)
		}
	}
	for _, g := range c.Groups {
		if n := strings.Count(drawing, ">"+g+"<"); n != 1 {
			t.Errorf("%s is drawn %d times", g, n)
		}
	}
	for _, row := range strings.Split(drawing, "<svg")[1:] {
		if !strings.Contains(row, ">60<") {
			t.Error("a row has another axis")
		}
	}
}

// TestConstantIsLevel draws what differs in the ninth digit only.
func TestConstantIsLevel(t *testing.T) {
	for name, y := range map[string][]float64{"noise": {70, 70 - 1e-8, 70 - 2e-8}, "constant": {70, 70, 70}, "zero": {0, 0, 0}} {
		drawing := drawn(t, &Chart{X: "x", Y: "y", Series: []Series{{Name: "a", Color: 1, X: []float64{1, 2, 3}, Y: y}}})
		line := regexp.MustCompile(`<path d="M([^"]*)" style="[^"]*#D55E00`).FindStringSubmatch(drawing)
		if line == nil {
			t.Fatalf("%s: there is no line in %s", name, drawing)
		}
		at := numbers(t, line[1], `,([0-9.]+)`)
		for _, v := range at {
			if math.Abs(v-at[0]) > 1 {
				t.Errorf("%s: the line goes over %v", name, at)
			}
		}
	}
}

// TestLogarithmic draws decades as far from each other as they are, and leaves out what has
// no logarithm.
func TestLogarithmic(t *testing.T) {
	drawing := drawn(t, &Chart{X: "x", Y: "y", Log: true, Series: []Series{
		{Name: "a", Color: 1, X: []float64{0.1, 1, 10, 100}, Y: []float64{0.1, 1, 10, 100}},
		{Name: "b", Dots: true, X: []float64{0, 5, 7}, Y: []float64{5, -1, 9}},
	}})
	line := regexp.MustCompile(`<path d="M([^"]*)" style="[^"]*#D55E00`).FindStringSubmatch(drawing)
	if line == nil {
		t.Fatalf("there is no line in %s", drawing)
	}
	at := numbers(t, line[1], `([0-9.]+),`)
	if len(at) != 4 || math.Abs((at[3]-at[2])-(at[1]-at[0])) > 0.1 {
		t.Errorf("decades are at %v", at)
	}
	for _, tick := range []string{"0.1", "1", "10", "100"} {
		if !strings.Contains(drawing, ">"+tick+"<") {
			t.Errorf("there is no tick at %s", tick)
		}
	}
}

// TestChartFile draws a chart of two lines for a file: their names and both axes are in the
// drawing, and no colour needs a page around it.
func TestChartFile(t *testing.T) {
	c := &Chart{X: "load", Y: "goodput", Series: []Series{
		{Name: "first", X: []float64{1, 2}, Y: []float64{3, 4}},
		{Name: "second", Color: 1, X: []float64{1, 2}, Y: []float64{4, 3}},
	}}
	drawing := string(c.File())
	for _, text := range []string{"<?xml", ">load<", ">goodput<", ">first<", ">second<"} {
		if !strings.Contains(drawing, text) {
			t.Errorf("no %q in %s", text, drawing)
		}
	}
	if strings.Contains(drawing, "var(") {
		t.Errorf("a colour of a page in %s", drawing)
	}
}

package reproduce

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// drawn is a chart of these values, with a mark of the authors' on the first
// series.
func drawn(values [][]float64) *chart {
	c := &chart{title: "a <b>", text: func(v float64) string { return fmt.Sprintf("%.2f", v) }, tick: func(v float64) string { return fmt.Sprintf("%g", v) }}
	for g := range values {
		c.groups = append(c.groups, fmt.Sprintf("group & %d", g))
	}
	for s := range values[0] {
		c.series = append(c.series, fmt.Sprintf("s%d", s))
	}
	c.colors = colorsOf(c.series)
	c.value = func(group, series string) (ours, authors *float64) {
		g, _ := strconv.Atoi(strings.TrimPrefix(group, "group & "))
		s, _ := strconv.Atoi(strings.TrimPrefix(series, "s"))
		if ours = &values[g][s]; s == 0 {
			authors = ours
		}
		return ours, authors
	}
	return c
}

// TestChartIsWhole looks at charts of any size: they are XML, have a bar for
// each value, and no bar is out of the picture.
func TestChartIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		series := rapid.IntRange(1, 12).Draw(t, "series")
		values := rapid.SliceOfN(rapid.SliceOfN(rapid.Float64Range(0, 1e6), series, series), 1, 30).Draw(t, "values")
		c := drawn(values)
		bars, width, height := 0, 0.0, 0.0
		d := xml.NewDecoder(strings.NewReader(c.svg()))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, c.svg())
			}
			element, ok := token.(xml.StartElement)
			if !ok {
				continue
			}
			at := map[string]float64{}
			for _, a := range element.Attr {
				at[a.Name.Local], _ = strconv.ParseFloat(a.Value, 64)
				if a.Name.Local == "viewBox" {
					if _, err := fmt.Sscanf(a.Value, "0 0 %f %f", &width, &height); err != nil {
						t.Fatal(err)
					}
				}
			}
			if element.Name.Local == "rect" {
				bars++
				if at["x"] < 0 || at["y"] < 0 || at["height"] <= 0 || at["x"]+at["width"] > width || at["y"]+at["height"] > height {
					t.Fatalf("a bar at %v of a picture of %v × %v", at, width, height)
				}
			}
		}
		if want := len(values) * series; bars != want {
			t.Fatalf("%d bars, want %d", bars, want)
		}
	})
}

func TestChartNamesEverything(t *testing.T) {
	svg := drawn([][]float64{{1, 2}, {3, 0}}).svg()
	for _, want := range []string{
		`aria-label="a &lt;b&gt;"`, "group &amp; 0, s0: 1.00, authors 1.00", "group &amp; 0, s1: 2.00<", "group &amp; 1, s1: 0.00<", ">3</text>",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("%s is missing in\n%s", want, svg)
		}
	}
}

// TestChartFitsLabels finds room to the left for a long slanted label.
func TestChartFitsLabels(t *testing.T) {
	width := func(group string) (width float64) {
		c := drawn([][]float64{{1}})
		c.groups, c.value = []string{group}, func(string, string) (ours, authors *float64) { return rounded(1), nil }
		if _, err := fmt.Sscanf(c.svg()[strings.Index(c.svg(), "viewBox="):], `viewBox="0 0 %f`, &width); err != nil {
			t.Fatal(err)
		}
		return width
	}
	if short, long := width("a"), width(strings.Repeat("a", 40)); long < short+100 {
		t.Errorf("%v wide with a label of one letter, %v with one of 40", short, long)
	}
}

func TestChartLevel(t *testing.T) {
	c := drawn([][]float64{{1, 2}})
	for level, want := range map[float64]bool{0: false, 1: true, 5: false} {
		c.line = level
		if got := strings.Contains(c.svg(), "stroke-dasharray"); got != want {
			t.Errorf("level %v is drawn: %t", level, got)
		}
	}
}

func TestChartWithoutAuthors(t *testing.T) {
	c := drawn([][]float64{{1}})
	c.value = func(string, string) (ours, authors *float64) { return nil, nil }
	if svg := c.svg(); strings.Contains(svg, "var(--paper)") || strings.Contains(svg, "<title>") {
		t.Errorf("nothing is drawn as\n%s", svg)
	}
}

// TestColors gives each policy one colour in all charts, and in one chart no
// two series the same.
func TestColors(t *testing.T) {
	if len(palette) < len(variants)+2 {
		t.Errorf("%d colours for %d policies and two bounds", len(palette), len(variants))
	}
	all := append(VariantNames(), boundUnmerged, boundMerged)
	first, seen := colorsOf(all), map[string]string{}
	for i, color := range first {
		if seen[color] != "" {
			t.Errorf("%s has the colour of %s", all[i], seen[color])
		}
		seen[color] = all[i]
	}
	slices.Reverse(all)
	last := colorsOf(all)
	for i, v := range variants {
		if alone := colorsOf([]string{"x", v.name})[1]; alone != first[i] || last[len(last)-1-i] != first[i] {
			t.Errorf("%s has the colours %s, %s and %s", v.name, first[i], alone, last[len(last)-1-i])
		}
	}
	many := make([]string, 2*len(palette))
	if got := colorsOf(many); slices.Contains(got, "") {
		t.Errorf("series without a colour: %q", got)
	}
}

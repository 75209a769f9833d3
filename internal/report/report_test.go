package report

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sample has one of everything, with names that would do harm.
func sample() *Document {
	d := &Document{Title: "a & b", Label: "Emulated: <b>"}
	d.Text("measured on %s", "x\x1b[2Jy")
	d.Heading("figure 17, goodput: what <script> gains")
	t := NewTable("models", "rows", "error")
	t.Rowf("%s\t%d\t%.1f %%", "a\tb", 3, 12.5)
	t.Rowf("%s\t%d", "longer", 12)
	t.Paint(1, "#e9a3a3")
	d.Table(t)
	d.List("first", `<svg onload="x">`)
	d.Chart(&Chart{Caption: "bars", Y: "percent", Groups: []string{"g & 1", "g2"}, LevelName: "target", Level: 2, MarkName: "theirs", Series: []Series{
		{Name: "s1", Y: []float64{1, math.NaN()}, Marks: []float64{2, math.NaN()}}, {Name: "<s2>", Color: 1, Y: []float64{3, 0}},
	}})
	d.Chart(&Chart{Caption: "lines", X: "x", Series: []Series{{Name: "l", X: []float64{0, 1}, Y: []float64{0, 2}}, {Name: "d", Dots: true, X: []float64{0}, Y: []float64{1}}, {Name: "b", Color: 2, Boxes: [][4]float64{{0, 0, 1, 2}}}, {Name: "none"}}})
	inside := &Document{}
	inside.Text("details")
	d.Fold("all numbers", inside)
	return d
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := sample().WriteText(&b); err != nil {
		t.Fatal(err)
	}
	want := `Emulated: <b>
measured on x�[2Jy

figure 17, goodput: what <script> gains
models  rows   error
a�b        3  12.5 %
longer    12
  first
  <svg onload="x">
`
	if b.String() != want {
		t.Errorf("got\n%s, want\n%s", b.String(), want)
	}
}

func pageOf(t *testing.T, d *Document) string {
	t.Helper()
	var b strings.Builder
	if err := d.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestPageShowsEverything(t *testing.T) {
	page := pageOf(t, sample())
	for _, want := range []string{
		"<h1>a &amp; b</h1>", `class="label">Emulated: &lt;b&gt;`, `<h2 id="figure-17-goodput">`, "what &lt;script&gt; gains", `<th class="right">rows</th>`, "<td>a�b</td>",
		`style="background:#e9a3a3;color:#222">12</td>`, "<figcaption>bars</figcaption>", `background:#0072b2"></i>s1</span>`, "&lt;s2&gt;", `class="level"></i>target`, `class="mark"></i>theirs`,
		"<summary>all numbers</summary>", "fill:#009E73", "<p>details</p>", "g &amp; 1",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if n := strings.Count(page, "</svg>"); n != 2 || strings.Contains(page, "<?xml") || strings.Contains(page, "NaN") {
		t.Errorf("%d drawings, want 2, each an element of the page", n)
	}
	if strings.Contains(page, "<nav>") {
		t.Error("a page of one section has a list of sections")
	}
}

// A page refers to nothing outside, has no script, and a contrast for both light
// and dark.
func TestPageStandsAlone(t *testing.T) {
	d := sample()
	for i := range fewestSections {
		d.Heading("part %d", i)
	}
	page := pageOf(t, d)
	outside := regexp.MustCompile(`(?i)\ssrc=|url\(|@import|<link|<script|onload="x"|https?://`)
	for _, found := range outside.FindAllString(regexp.MustCompile(`http://www.w3.org/[a-z0-9/]+`).ReplaceAllString(page, ""), -1) {
		if found != `onload="x"` || !strings.Contains(page, "&lt;svg onload=") {
			t.Errorf("the page refers to something outside: %q", found)
		}
	}
	for _, color := range regexp.MustCompile(`var\((--[a-z]+)\)`).FindAllStringSubmatch(page, -1) {
		if n := strings.Count(page, color[1]+": #"); n != 2 {
			t.Errorf("%s is defined %d times, want once for light and once for dark", color[1], n)
		}
	}
	anchors := regexp.MustCompile(`href="#([^"]+)"`).FindAllStringSubmatch(page, -1)
	if len(anchors) != fewestSections+1 {
		t.Errorf("%d links to sections", len(anchors))
	}
	for _, a := range anchors {
		if !strings.Contains(page, `id="`+a[1]+`"`) {
			t.Errorf("#%s leads nowhere", a[1])
		}
	}
}

// A chart has the colours of the page around it, light or dark, but for its series.
func TestChartIsOfThePage(t *testing.T) {
	d := &Document{}
	d.Chart(&Chart{Groups: []string{"a"}, MarkName: "theirs", Series: []Series{{Y: []float64{1}, Marks: []float64{2}}}})
	d.Chart(&Chart{Series: []Series{{X: []float64{0, 1}, Y: []float64{0, 2}}}})
	page := pageOf(t, d)
	_, drawings, _ := strings.Cut(page, "<svg")
	if fixed := regexp.MustCompile(`(?i):#(000000|ffffff)`).FindString(drawings); fixed != "" || !strings.Contains(drawings, "currentColor") {
		t.Errorf("a chart has a colour of its own: %q", fixed)
	}
	if n := strings.Count(page, `class="fit"`); n != 1 {
		t.Errorf("%d charts fit the width of the page, want that of lines", n)
	}
}

func TestPageIsWellFormed(t *testing.T) {
	d := xml.NewDecoder(strings.NewReader(pageOf(t, sample())))
	d.Strict, d.AutoClose, d.Entity = false, []string{"meta"}, xml.HTMLEntity
	depth := 0
	for {
		token, err := d.RawToken()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			if e.Name.Local != "meta" {
				depth++
			}
		case xml.EndElement:
			depth--
		}
	}
	if depth != 0 {
		t.Errorf("%d elements are not closed", depth)
	}
}

// Charts of any size are XML, and have a bar for each value that there is.
func TestChartIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		series := rapid.IntRange(1, 12).Draw(t, "series")
		values := rapid.SliceOfN(rapid.SliceOfN(rapid.Float64Range(0, 1e6), series, series), 1, 30).Draw(t, "values")
		c, want := &Chart{}, 0
		for g := range values {
			c.Groups = append(c.Groups, fmt.Sprintf("group & %d", g))
		}
		for s := range series {
			one := Series{Name: fmt.Sprint(s), Color: s, Y: make([]float64, len(values))}
			for g := range values {
				if one.Y[g] = values[g][s]; (g+s)%3 == 2 {
					one.Y[g] = math.NaN()
				} else {
					want++
				}
			}
			c.Series = append(c.Series, one)
		}
		svg := c.svg()
		filled := 0
		d := xml.NewDecoder(strings.NewReader(string(svg)))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, svg)
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "path" && strings.Contains(fmt.Sprint(e.Attr), "fill:#") {
				filled++
			}
		}
		if filled != want {
			t.Fatalf("%d bars, want %d, in %s", filled, want, svg)
		}
	})
}

// broke takes so many bytes.
type broke struct{ left int }

var errBroke = errors.New("no more")

func (w *broke) Write(p []byte) (int, error) {
	if w.left -= len(p); w.left < 0 {
		return 0, errBroke
	}
	return len(p), nil
}

func TestErrorsOfTheWriter(t *testing.T) {
	for _, n := range []int{0, 3000} {
		if err := sample().WriteHTML(&broke{n}); !errors.Is(err, errBroke) {
			t.Errorf("page: %v", err)
		}
	}
	if err := sample().WriteText(&broke{}); !errors.Is(err, errBroke) {
		t.Errorf("text: %v", err)
	}
}

func TestFrequent(t *testing.T) {
	if got, want := Frequent(map[string]int64{"b": 2, "a": 2, "none": 0, "c": 30}), "c 30, a 2, b 2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

func TestCount(t *testing.T) {
	for want, got := range map[string]string{
		"0 rounds": Count(0, "round"), "1 round": Count(uint64(1), "round"), "2 queries": Count(2, "query", "queries"), "1 query": Count(int64(1), "query", "queries"),
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

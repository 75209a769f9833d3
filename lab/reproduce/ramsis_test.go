package reproduce

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/planning/selection"
)

var smallSetup = setup{
	tasks:   []task{{"image", []float64{100}, 3}, {"text", []float64{50}, 2}},
	loads:   []float64{50, 150},
	workers: []int{2, 3, 4},
	levels:  10,
}

// ramsisMade returns a folder with made-up variants of both tasks in the form of the paper's,
// and a load that changes once.
func ramsisMade(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var accuracy, latency strings.Builder
	accuracy.WriteString("task,model,accuracy_percent\n")
	latency.WriteString("task,model,batch,p95_ms\n")
	for _, task := range smallSetup.tasks {
		for i := range 4 {
			fmt.Fprintf(&accuracy, "%s,%s%d,%d\n", task.name, task.name, i, 50+10*i)
			for b := 1; b <= 3; b++ {
				fmt.Fprintf(&latency, "%s_cpu,%s%d,%d,%d\n", task.name, task.name, i, b, (5+6*i*i)*(b+1))
			}
		}
	}
	for name, text := range map[string]string{
		"accuracy_percent.csv": accuracy.String(), "profile_summary_ms.csv": latency.String(), traceFile: "0 50\n10 150\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

// TestRAMSIS: the same files twice, in which all figures have numbers of all contenders.
func TestRAMSIS(t *testing.T) {
	var pages [2][]byte
	data := ramsisMade(t)
	for i := range pages {
		out := t.TempDir()
		r, err := smallSetup.run(t.Context(), Options{Data: data, Out: out, Seed: 1, Seeds: 2, Queries: 500})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range r.Figures {
			for _, name := range f.policies() {
				if has := func(r row) bool { return r.Policy == name && r.Ours != nil }; !slices.ContainsFunc(f.Rows, has) {
					t.Errorf("figure %s has nothing of %s", f.Figure, name)
				}
			}
			for _, c := range f.charts() {
				if len(c.Series) == 0 {
					t.Errorf("figure %s: a chart without lines: %s", f.Figure, c.Caption)
				}
			}
		}
		for _, name := range []string{PageFile, resultFile} {
			b, err := os.ReadFile(filepath.Join(out, name))
			if err != nil {
				t.Fatal(err)
			}
			pages[i] = append(pages[i], b...)
		}
	}
	if !bytes.Equal(pages[0], pages[1]) {
		t.Error("the same data and seed give another page")
	}
	if !bytes.Contains(pages[0], []byte("<svg")) {
		t.Error("the page has no picture")
	}
}

func TestRAMSISRefuses(t *testing.T) {
	for want, trace := range map[string]string{"the second 10 and": "0 300\n11 900\n", "the second 0 and": "0 NaN\n", "no row below": "0 300\n"} {
		dir := ramsisMade(t)
		writeFile(t, filepath.Join(dir, traceFile), trace)
		if _, err := smallSetup.run(t.Context(), Options{Data: dir, Out: t.TempDir(), Seeds: 1, Queries: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", trace, err, want)
		}
	}
}

// TestMeans compares choosers over the loads at which each of them has an accuracy.
func TestMeans(t *testing.T) {
	at := func(name string, ours, theirs, late float64) *place {
		return &place{name: name, runs: map[string][]outcome{ramsis.name: servedAt(ours, 0), jellyfish.name: servedAt(theirs, late)}}
	}
	f := means("8", "x", []*place{at("150 ms", 80, 70, 0), at("150 ms", 70, 66, 4), at("150 ms", 60, 10, 5), at("300 ms", 60, 10, 5)}, ramsis, jellyfish)
	if len(f.Rows) != 2 {
		t.Fatalf("%d rows: %+v", len(f.Rows), f.Rows)
	}
	for name, want := range map[string]float64{ramsis.name: 75, jellyfish.name: 68} {
		if r := f.find("150 ms", 0, name); r == nil || math.Abs(*r.Ours-want) > 1e-4 {
			t.Errorf("%s: %+v, want %v", name, r, want)
		}
	}
}

// servedAt returns what became of a thousand queries, by percent late.
func servedAt(accuracy, late float64) []outcome {
	n := 1000 - int(10*late)
	return []outcome{{queries: 1000, inTime: n, accuracy: accuracy * float64(n)}}
}

// TestSums: what the paper says in words is of places where both have an accuracy, and workers
// are saved where fewer have the accuracy of the other.
func TestSums(t *testing.T) {
	d := &variantData{setup: &setup{tasks: []task{{name: "image"}}}}
	var all []*place
	for i, at := range []struct{ ours, theirs, late float64 }{{70, 60, 6}, {75, 71, 4}, {80, 75, 1}, {82, 83, 0}} {
		all = append(all, &place{
			fleet: fleet{workers: 10 * (i + 1)}, task: "image", trace: []float64{1},
			runs: map[string][]outcome{ramsis.name: servedAt(at.ours, 0), jellyfish.name: servedAt(at.theirs, at.late), switching.name: servedAt(50, 50)},
		})
	}
	f := d.summary("x", "", all, map[string]said{"image over Jellyfish+": {mean: 3}})
	for name, want := range map[string]float64{
		"points of accuracy, mean": 8. / 3, "points of accuracy, most": 5, "points of accuracy, least": -1, "percent late, more, mean": -5. / 3,
		"percent of places where it is at least as accurate": 200. / 3, "percent of workers saved for equal accuracy, mean": 100. / 9,
	} {
		r := f.find("image: "+name, 0, "over Jellyfish+")
		if r == nil || math.Abs(*r.Ours-want) > 1e-4 {
			t.Errorf("%s: %+v, want %v", name, r, want)
		}
	}
	if len(f.Rows) != 6 {
		t.Errorf("%d rows, though ModelSwitching has no accuracy anywhere", len(f.Rows))
	}
}

// TestBounds: a mean keeps to what is expected within two standard errors, and each run by
// itself.
func TestBounds(t *testing.T) {
	var all []*place
	for _, expected := range []float64{70.9, 72.2, 75} {
		p := &place{expected: &selection.Policy{Accuracy: expected, Violations: 0.01}, runs: map[string][]outcome{}}
		p.runs[ramsis.name] = append(append(servedAt(70, 0), servedAt(71, 0)...), servedAt(73, 2)...)
		all = append(all, p)
	}
	f := bounds("x", "", append(all, &place{expected: &selection.Policy{Accuracy: 99, Violations: 0.5}}))
	for name, want := range map[string]float64{
		"accuracy: loads and workers whose mean keeps to it, percent": 200. / 3, "accuracy: runs that keep to it, percent": 100. / 3,
		"violations: runs that keep to it, percent": 200. / 3, "violations: points by which means are better, mean": 1. / 3,
	} {
		if r := f.find(name, 0, ramsis.name); r == nil || math.Abs(*r.Ours-want) > 1e-4 {
			t.Errorf("%s: %+v, want %v", name, r, want)
		}
	}
}

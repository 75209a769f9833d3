package reproduce

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var smallSetup = setup{
	tasks:   []task{{"image", []float64{100}, 3}, {"text", []float64{50}, 2}},
	loads:   []float64{50, 150},
	workers: []int{2, 3, 4},
	levels:  10,
	models:  6,
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
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
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
		if err := os.WriteFile(filepath.Join(dir, traceFile), []byte(trace), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := smallSetup.run(t.Context(), Options{Data: dir, Out: t.TempDir(), Seeds: 1, Queries: 1}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", trace, err, want)
		}
	}
}

// TestRAMSISGains is one place of figure 6 with what the authors measured.
func TestRAMSISGains(t *testing.T) {
	dir := cmp.Or(os.Getenv("OVERLAPD_SHARED_DATA"), filepath.Join("..", "..", "..", "..", "shared", "data"))
	if !exists(filepath.Join(dir, variantsFolder)) {
		t.Skip("OVERLAPD_SHARED_DATA does not name the folder with the measurements of RAMSIS, and they are not beside the repository")
	}
	d, err := section7.read(dir)
	if err != nil || len(d.trace) != 27 || len(d.variants["image"]) != 9 || len(d.variants["text"]) != 5 {
		t.Fatalf("%v: %d loads, %d and %d variants", err, len(d.trace), len(d.variants["image"]), len(d.variants["text"]))
	}
	r := &reproduction{options: &Options{Seed: 1, Seeds: 1, Queries: 4000}, selection: d}
	r.result = &Result{}
	p := d.steady("image", 300, 10, 333)
	contend(r, "", []*place{p}, ramsisRivals...)
	if err := r.plan.run(t.Context(), newLane, newTally(nil, 1)); err != nil {
		t.Fatal(err)
	}
	ours := p.runs[ramsis.name][0]
	for _, other := range []string{jellyfish.name, switching.name} {
		if theirs := p.runs[other][0]; ours.mean() < theirs.mean()+2 || ours.violations() > theirs.violations()+0.001 {
			t.Errorf("%.2f and %.4f late, %s has %.2f and %.4f", ours.mean(), ours.violations(), other, theirs.mean(), theirs.violations())
		}
	}
}

package reproduce

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
)

// TestGoodput: what is found keeps to the targets, a little more does not, and there is no
// goodput where nobody can be in time.
func TestGoodput(t *testing.T) {
	g := gpuOf(t, "a,1,5\n")
	s := g.service("a", 30*time.Millisecond)
	if s.MaxBatch != 25 {
		t.Errorf("batches of up to %d are in time, want 25", s.MaxBatch)
	}
	r := &reproduction{options: &Options{Queries: 4000, Seed: 3}}
	w := newWorkload(r, g, 2, copies(s, 2, 0.9)...)
	for _, c := range []string{"deferred", "nexus"} {
		at, err := w.goodput(t.Context(), contenderNamed(c))
		if err != nil || !at.keeps() || at.batch < 2 {
			t.Fatalf("%s: %v, batches of %d, violations %v", c, err, at.batch, at.Violations)
		}
		rate := at.found
		above, err := w.serve(contenderNamed(c), w.arrivals(w.queries), rate+w.ceiling()/(1<<goodputSteps))
		if err != nil || above.keeps() {
			t.Errorf("%s: %v a little more than %v is borne", c, err, rate)
		}
	}
	few := newWorkload(r, g, 16, s)
	n, err := few.fewest(t.Context(), contenderNamed("deferred"), 2500)
	if err != nil || n.found < 3 || n.found > 6 {
		t.Errorf("%v devices bear what two to five can do, %v", n.found, err)
	}
	few.devices = 1
	if n, err := few.fewest(t.Context(), contenderNamed("deferred"), 2500); n.found != 0 || err != nil {
		t.Errorf("%v devices bear it, %v, want none", n.found, err)
	}
}

// gpuOf returns a device with the models of some rows.
func gpuOf(t *testing.T, rows string) gpu {
	t.Helper()
	g, err := newGPU(device.Linear("a", rows))
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// linearData returns a folder with few models in the form of both papers.
func linearData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	var rows strings.Builder
	rows.WriteString("gpu,model,alpha_ms,beta_ms,slo_ms\n")
	for _, gpu := range zooGPUs {
		for _, m := range append([]string{"ResNet50"}, syntheticModels...) {
			rows.WriteString(gpu + "," + m + ",1,5,30\n")
		}
		rows.WriteString(gpu + ",weak,5,1,30\n")
	}
	for name, text := range map[string]string{
		symphony.file: rows.String(),
		shepherd.file: "model,alpha_ms,beta_ms,exit_points\n" + burstModel + ",0.22,3.74,40\n" + steadyModel + ",4.37,74.2,128\n",
	} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	return dir
}

// TestLinearPapers draws figures of both papers, the same each time.
func TestLinearPapers(t *testing.T) {
	data := linearData(t)
	for _, c := range []struct {
		paper   *linearPaper
		figures []string
		rows    map[string]int
	}{
		{&symphony, []string{"table 2"}, map[string]int{"table 2": 18, "table 2, batches": 18}},
		{&shepherd, []string{"11"}, map[string]int{"11": 14, "11, gain": 6}},
	} {
		var outs [2][]byte
		for i := range outs {
			o := Options{Data: data, Out: t.TempDir(), Queries: 300, Seeds: 3, Seed: 1, Figures: c.figures}
			r, err := c.paper.run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(r.Figures) != len(c.rows) || len(r.Missing) > 0 {
				t.Errorf("%s: %d figures, missing %v", c.paper.title, len(r.Figures), r.Missing)
			}
			if f := r.Figures[len(r.Figures)-1]; c.paper == &shepherd {
				first := f.find("target 90ms, first burst", 0, "over no-preemption")
				if first == nil || *first.Ours < 6.1 || *first.Ours > 6.3 {
					t.Errorf("preemption gains %v of the first burst, want 6.2 as in the paper", first)
				}
			}
			for name, rows := range c.rows {
				f := figureNamed(t, r.Figures, name)
				if len(f.Rows) != rows {
					t.Errorf("%s, figure %s: %d rows, want %d", c.paper.title, name, len(f.Rows), rows)
				}
				if one := f.Rows[0]; c.paper == &symphony && !(*one.Least <= *one.Ours && *one.Ours <= *one.Most && *one.Least < *one.Most) && name == "table 2" {
					t.Errorf("figure %s: three seeds have %v from %v to %v", name, *one.Ours, *one.Least, *one.Most)
				}
			}
			result, page := outputs(t, &o)
			if outs[i] = result; !strings.Contains(string(page), c.paper.title+", reproduced") || strings.Contains(string(page), "less authors") {
				t.Errorf("%s: the page has no title, or columns for authors", c.paper.title)
			}
		}
		if !bytes.Equal(outs[0], outs[1]) {
			t.Errorf("%s: two runs differ", c.paper.title)
		}
	}
	if _, err := Symphony(t.Context(), Options{Data: t.TempDir(), Out: t.TempDir(), Queries: 1, Seeds: 1}); err == nil || !strings.Contains(err.Error(), symphony.file) {
		t.Errorf("without profiles: %v", err)
	}
	if _, err := Shepherd(t.Context(), Options{Data: data, Out: t.TempDir(), Queries: 1, Seeds: 1, Figures: []string{"99"}}); err == nil || !strings.Contains(err.Error(), "give some of 7, 9, 11") {
		t.Errorf("an unknown figure: %v", err)
	}
}

// TestMixesPartTheModels by what batching gains them.
func TestMixesPartTheModels(t *testing.T) {
	g := gpuOf(t, "strong,1,5\neven,1,2\nweak,5,1\n")
	g.profile.Targets = map[string]float64{"strong": 30, "even": 30, "weak": 30}
	for i, want := range []string{"strong even weak", "strong", "even weak"} {
		var names []string
		for _, s := range g.zoo(mixes[i].takes) {
			names = append(names, s.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("%s: %s, want %s", mixes[i].name, got, want)
		}
	}
}

// TestNoMoreIsInTimeThanDevicesDo, though queries that come last find devices that nobody
// asks any more.
func TestNoMoreIsInTimeThanDevicesDo(t *testing.T) {
	g := gpuOf(t, "a,1,5\n")
	w := newWorkload(&reproduction{options: &Options{Queries: 2000, Seed: 3}}, g, 4, g.service("a", 100*time.Millisecond))
	for _, name := range []string{"deferred", "nexus"} {
		run, err := w.serve(contenderNamed(name), w.arrivals(w.queries), 1.5*w.ceiling())
		if err != nil || timely(&run) > w.ceiling() || timely(&run) < 0.5*w.ceiling() {
			t.Errorf("%s: %v in time, the devices do %v, %v", name, timely(&run), w.ceiling(), err)
		}
	}
}

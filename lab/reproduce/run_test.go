package reproduce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/report"
)

// quick are options that take seconds. Tests share what is fitted, which files are
// named by: fitting is most of what they take.
func quick(t *testing.T, data string) Options {
	o := anew(t, data)
	if err := os.Symlink(fittedByTests, filepath.Join(o.Out, fittedFolder)); err != nil {
		t.Fatal(err)
	}
	return o
}

// anew returns the options of quick, in a folder without fitted files.
func anew(t *testing.T, data string) Options {
	o := DefaultOptions()
	o.Data, o.Out, o.Seeds, o.Queries, o.Epochs, o.Commit = data, t.TempDir(), 2, 20, 1, "none"
	return o
}

func reproduce(t *testing.T, o Options) *Result {
	t.Helper()
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func outputs(t *testing.T, o *Options) (result, page []byte) {
	t.Helper()
	var read [2][]byte
	for i, name := range []string{resultFile, PageFile} {
		var err error
		if read[i], err = os.ReadFile(filepath.Join(o.Out, name)); err != nil {
			t.Fatal(err)
		}
	}
	return read[0], read[1]
}

func TestRun(t *testing.T) {
	data := drawnData(t)
	o := quick(t, data)
	last := 0.0
	o.Progress = func(stage string, done float64, left time.Duration) {
		if stage == "" || done < last || done > 1 || left < 0 {
			t.Errorf("progress %q, %v and %v left, after %v", stage, done, left, last)
		}
		last = done
	}
	r := reproduce(t, o)
	if last != 1 {
		t.Errorf("ended at %v", last)
	}
	var names []string
	for _, f := range r.Figures {
		names = append(names, f.Figure)
		for _, row := range f.Rows {
			if row.Ours == nil {
				t.Errorf("figure %s: %+v has no number", f.Figure, row)
			}
		}
	}
	want := []string{"headline", "highest-load", "highest-load, quadruplets, profiling clock", "gain", "gain in short", "gain by pair, profiling clock", "pool", "pool, gain", "10", "14", "15", "17", "18", "18, violations", "19", "22", "22, violations", "22, latency", "pods", "pods, trace", "23", "credibility", "static", "static violations"}
	if !slices.Equal(names, want) {
		t.Errorf("figures %q, want %q", names, want)
	}
	if len(r.Missing) != 1 || r.Missing[0].Figure != "20 and 21" {
		t.Errorf("missing %+v", r.Missing)
	}
	result, page := outputs(t, &o)
	if !bytes.Contains(result, []byte("Emulated: ")) || bytes.Count(page, []byte("(emulated)")) != len(want) {
		t.Error("the output does not say everywhere that it is emulated")
	}

	// In another folder, with everything fitted again on one core, the result is the same. Figure
	// 10 mostly trains, and the tests of package fit check that training is deterministic.
	fresh := anew(t, data)
	fresh.Figures = slices.DeleteFunc(FigureNames(), func(name string) bool { return name == "10" })
	cores := runtime.GOMAXPROCS(1)
	reproduce(t, fresh)
	runtime.GOMAXPROCS(cores)
	again, pageAgain := outputs(t, &fresh)
	var rest, restPage bytes.Buffer
	others := *r
	others.Figures = slices.DeleteFunc(slices.Clone(r.Figures), func(f *figure) bool { return f.Figure == "10" })
	if err := errors.Join(report.WriteJSON(&rest, &others), others.Document().WriteHTML(&restPage)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(rest.Bytes(), again) || !bytes.Equal(restPage.Bytes(), pageAgain) {
		t.Error("one seed gave two results")
	}
	var decoded Result
	if err := json.Unmarshal(result, &decoded); err != nil || len(decoded.Figures) != len(want) {
		t.Errorf("result.json: %v, %d figures", err, len(decoded.Figures))
	}
	var text strings.Builder
	if err := r.Document().WriteText(&text); err != nil || !strings.Contains(text.String(), "figure 17: ") {
		t.Errorf("%v:\n%s", err, &text)
	}
}

// With isolated latencies there are two clocks, and figures about overlapping have both.
func TestRunAtBothClocks(t *testing.T) {
	o := quick(t, drawnData(t))
	writeFile(t, filepath.Join(o.Data, abacusFolder, soloFile), "model,batch,seq_len,min_ms\nresnet50,4,0,1\nresnet50,32,0,1\n")
	o.Figures, o.Policies, o.Seeds, o.Queries = []string{"highest-load", "15"}, []string{"edf-unmerged", "edf", "overlap"}, 1, 200
	r := reproduce(t, o)
	var names []string
	for _, f := range r.Figures {
		names = append(names, f.Figure)
	}
	want := []string{"headline", "highest-load", "highest-load, quadruplets, serving clock", "highest-load, pairs, profiling clock", "highest-load, quadruplets, profiling clock", "15", "15, profiling clock"}
	if !slices.Equal(names, want) {
		t.Fatalf("figures %q, want %q", names, want)
	}
	if n := len(r.Figures[0].Rows); n != 4 {
		t.Errorf("the headline has %+v", r.Figures[0].Rows)
	}
	serving, profiling := r.Figures[1].find("Res50+Res101", 0, "edf-unmerged"), r.Figures[3].find("Res50+Res101", 0, "edf-unmerged")
	if *serving.Ours < 1.2**profiling.Ours {
		t.Errorf("edf bears %v with a model that is several times faster, %v without", *serving.Ours, *profiling.Ours)
	}
}

// TestMissingFiguresAreTold, each with why, and those that were not asked for
// are not.
func TestMissingFiguresAreTold(t *testing.T) {
	for name, c := range map[string]struct {
		figures, remove []string
		want            map[string]string
	}{
		"no quadruplets": {[]string{"19", "23"}, []string{"abacus-a100/quad"}, map[string]string{"18, 19, 22 and 23": "no groups of four models in quad"}},
		"neither":        {[]string{"18", "22"}, []string{"abacus-a100/quad", loadsFile}, map[string]string{"18, 19, 22 and 23": "no groups of four models in quad"}},
		"no loads":       {[]string{"22"}, []string{loadsFile}, map[string]string{"22": "the folder with data has no " + loadsFile}},
		"never any MIG":  {[]string{"21"}, nil, map[string]string{"20 and 21": "nothing was measured on MIG instances"}},
		"not asked for":  {[]string{"15"}, []string{"abacus-a100/quad", loadsFile}, map[string]string{}},
	} {
		o := quick(t, drawnData(t))
		o.Figures, o.Policies, o.Seeds = c.figures, []string{"fcfs-authors"}, 1
		for _, path := range c.remove {
			if err := os.RemoveAll(filepath.Join(o.Data, path)); err != nil {
				t.Fatal(err)
			}
		}
		r := reproduce(t, o)
		if len(r.Missing) != len(c.want) || len(r.Missing) > 0 && len(r.Figures) > 0 {
			t.Errorf("%s: %d are missing, want %d, and there are %d", name, len(r.Missing), len(c.want), len(r.Figures))
		}
		_, page := outputs(t, &o)
		for _, m := range r.Missing {
			if want, ok := c.want[m.Figure]; !ok || !strings.Contains(m.Why, want) {
				t.Errorf("%s: %+v, want %q", name, m, want)
			}
			if !bytes.Contains(page, []byte(m.Title)) {
				t.Errorf("%s: the page does not tell of %+v", name, m)
			}
		}
	}
}

func TestRunRefuses(t *testing.T) {
	data := drawnData(t)
	for name, c := range map[string]struct {
		change func(*Options)
		want   string
	}{
		"no data":      {func(o *Options) { o.Data = "" }, "give --data DIR"},
		"empty folder": {func(o *Options) { o.Data = t.TempDir() }, "neither abacus-a100/pairs nor pairs"},
		"empty trace": {func(o *Options) {
			o.Data, o.Figures = broken(t, loadsFile, "minute,load\n"), []string{"22"}
		}, "unusable arrivals: "},
		"missing column": {func(o *Options) {
			o.Data = broken(t, "abacus-a100/pairs/a.csv", "model,start,end,bs,model\n")
		}, "a.csv:1"},
		"negative latency": {func(o *Options) {
			o.Data = broken(t, "abacus-a100/pairs/a.csv", strings.Repeat("model,start,end,bs,seq_len,", 2)+"median,mean,std\nresnet50,0,6,4,0,resnet101,0,10,4,0,-1,1,1\n")
		}, "a.csv:2"},
		"unknown model": {func(o *Options) {
			o.Data = broken(t, "abacus-a100/"+calmFile, drawnResults("Res50+Alexnet"))
		}, calmFile + ":2"},
	} {
		o := quick(t, data)
		c.change(&o)
		if _, err := Run(t.Context(), o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// broken is a folder of data with one other file.
func broken(t *testing.T, name, text string) string {
	t.Helper()
	dir := drawnData(t)
	writeFile(t, filepath.Join(dir, name), text)
	return dir
}

func TestRunEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := quick(t, drawnData(t))
	o.Progress = func(string, float64, time.Duration) { cancel() }
	if _, err := Run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

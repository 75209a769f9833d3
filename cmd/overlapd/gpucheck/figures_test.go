package gpucheck

import (
	"bytes"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cmd/overlapd/load"
	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/segments"
)

func TestChoose(t *testing.T) {
	row := func(wanted, segments, batch int, ratio float64) CutRow {
		return CutRow{Model: "m", Batch: batch, Wanted: wanted, Segments: segments, Ratio: ratio}
	}
	for name, c := range map[string]struct {
		rows   []CutRow
		wanted int
		within bool
	}{
		"the finest":                {[]CutRow{row(0, 58, 1, 1.05), row(16, 16, 1, 1.01)}, 0, true},
		"every batch counts":        {[]CutRow{row(0, 58, 1, 1.01), row(16, 16, 1, 1.01), row(0, 58, 8, 1.06), row(16, 16, 8, 1.02)}, 16, true},
		"none within":               {[]CutRow{row(0, 58, 1, 1.2), row(16, 16, 1, 1.1), row(4, 4, 1, 1.15)}, 16, false},
		"within beats less cost":    {[]CutRow{row(4, 4, 1, 0.99), row(64, 64, 1, 1.049)}, 64, true},
		"a batch that is not there": {[]CutRow{row(0, 58, 1, 1.5), row(4, 4, 8, 1.04)}, 4, true},
		"measured with all batches": {[]CutRow{row(0, 58, 1, 1.01), row(4, 4, 1, 1.02), row(4, 4, 8, 1.2)}, 4, false},
	} {
		got := choose(c.rows, named("m", "absent"))
		if len(got) != 1 || got[0].Wanted != c.wanted || got[0].Within != c.within {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// TestChooseIsFinest holds the choice to what it promises.
func TestChooseIsFinest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ratio := rapid.Float64Range(0.9, 1.2)
		var rows []CutRow
		worst := map[int]float64{}
		batches := rapid.IntRange(1, 3).Draw(t, "batches")
		for _, wanted := range rapid.SliceOfNDistinct(rapid.IntRange(1, 100), 1, 6, rapid.ID[int]).Draw(t, "wanted") {
			for batch := range batches {
				r := CutRow{Model: "m", Batch: batch, Wanted: wanted, Segments: wanted, Ratio: ratio.Draw(t, "ratio")}
				rows, worst[wanted] = append(rows, r), max(worst[wanted], r.Ratio)
			}
		}
		got := choose(rows, named("m"))[0]
		for wanted, cost := range worst {
			switch {
			case cost <= cutLimit && (!got.Within || got.Segments < wanted):
				t.Fatalf("%d is finer or within, got %+v", wanted, got)
			case !got.Within && cost < got.Worst:
				t.Fatalf("%d costs less, got %+v", wanted, got)
			}
		}
		if got.Worst != worst[got.Wanted] {
			t.Fatalf("%+v, costs %v", got, worst)
		}
	})
}

func TestSpread(t *testing.T) {
	if r := spread(nil); r.Runs != 0 || r.Spread != 0 {
		t.Errorf("of nothing: %+v", r)
	}
	times := make([]float64, 100)
	for i := range times {
		times[i] = 9 + 2*float64(i%2)
	}
	r, std := spread(times), math.Sqrt(100.0/99)
	if math.Abs(r.MeanMS-10) > 1e-9 || math.Abs(r.StdMS-std) > 1e-9 || math.Abs(r.Spread-std/10) > 1e-9 || r.P1MS != 9 || r.P99MS != 11 {
		t.Errorf("%+v", r)
	}
	rapid.Check(t, func(t *rapid.T) { // a factor changes no spread, and quantiles are in order
		list := rapid.SliceOfN(rapid.Float64Range(0.1, 10), 1, 200).Draw(t, "times")
		larger := make([]float64, len(list))
		for i := range list {
			larger[i] = 4 * list[i]
		}
		a, b := spread(list), spread(larger)
		if math.Abs(a.Spread-b.Spread) > 1e-9 || a.P1MS > a.MedianMS || a.MedianMS > a.P99MS {
			t.Fatalf("%+v and %+v", a, b)
		}
	})
}

func TestPairsOf(t *testing.T) {
	if got := pairsOf(3); !slices.Equal(got, [][2]int{{0, 1}, {0, 2}, {1, 2}}) {
		t.Errorf("%v", got)
	}
}

// withPairs returns a check that knows what services take alone.
func withPairs(o Options) *check {
	r := newReport(&o, time.Unix(0, 0))
	a, b, c := o.Services[0].Name, o.Services[1].Name, o.Services[2].Name
	r.Pairs = []PairRow{
		{A: a, B: b, Batch: 1, AloneAMS: 9, AloneBMS: 9},
		{A: a, B: b, Batch: 1, AloneAMS: 1, AloneBMS: 2, MPS: true},
		{A: b, B: c, Batch: 1, AloneAMS: 2, AloneBMS: 3, MPS: true},
		{A: b, B: c, Batch: 8, AloneAMS: 70, AloneBMS: 70, MPS: true},
	}
	return &check{Options: o, report: r}
}

func TestAloneAndTarget(t *testing.T) {
	c := withPairs(DefaultOptions())
	for i, want := range []float64{1, 2, 3} {
		if got := c.alone(c.Services[i].Name, 1); got != want {
			t.Errorf("%s takes %v, want %v", c.Services[i].Name, got, want)
		}
	}
	if got := c.alone("absent", 1); got != 0 {
		t.Errorf("an unknown model takes %v", got)
	}
	for i, want := range []time.Duration{6, 8, 12} { // all of them one after another, then four times its own
		if got := c.target(c.Services[i].Name); got != want*time.Millisecond {
			t.Errorf("target of %s is %v, want %v ms", c.Services[i].Name, got, int(want))
		}
	}
	c.report.Pairs = nil
	if got := c.target(c.Services[0].Name); got != leastTarget {
		t.Errorf("without a measurement the target is %v", got)
	}
}

func TestSetting(t *testing.T) {
	c := withPairs(DefaultOptions())
	s := c.setting(time.Hour)
	if s.Rate != 500 || s.Offered != 1 || s.Rounds != 3 || s.Turn != 5 {
		t.Errorf("%+v", s)
	}
	c.MaxRate = 250
	if s = c.setting(time.Hour); s.Rate != 250 || s.Offered != 0.5 {
		t.Errorf("with a limit: %+v", s)
	}
	rapid.Check(t, func(t *rapid.T) { // it fits, unless that would leave nothing
		left := time.Duration(rapid.Int64Range(0, int64(3*time.Minute)).Draw(t, "left"))
		s := c.setting(left)
		turn := time.Duration(s.Turn * float64(time.Second))
		whole := time.Duration(s.Rounds*len(c.Policies)) * (turn + turnWarmup + turnSlack)
		if s.Rounds < 1 || turn < leastTurn || turn > c.Turn || whole > left+time.Millisecond && turn > leastTurn {
			t.Fatalf("%v for %v: %+v", whole, left, s)
		}
	})
}

func TestNewTurn(t *testing.T) {
	goodput := 30.0
	r := &load.Result{Duration: 2, Load: load.Load{Requests: 80, Goodput: &goodput, SendLag: &load.SendLag{P99: 0.5}, Errors: map[string]int64{"late": 3}},
		Services: []load.ServiceResult{
			{Load: load.Load{TargetMS: 10, Latency: load.Latency{P50: 2, P99: 8}}},
			{Load: load.Load{TargetMS: 20, Latency: load.Latency{P50: 2, P99: 30}}},
			{Load: load.Load{Latency: load.Latency{P99: 1000}}},
		}}
	got := newTurn(r, 1)
	if got.Violations != 0.25 || got.Goodput != 30 || got.P99 != 1.5 || got.P50 != 0.2 || got.LagP99MS != 0.5 || got.Errors["late"] != 3 {
		t.Errorf("%+v", got)
	}
	if got := newTurn(&load.Result{}, 0); got.Violations != 1 {
		t.Errorf("of nothing: %+v", got)
	}
}

func TestSumUp(t *testing.T) {
	turns := []Turn{
		{Policy: "a", Requests: 100, Violations: 0.1, Goodput: 9, P99: 1, Errors: map[string]int64{"x": 1}},
		{Policy: "b", Requests: 100, Violations: 1},
		{Policy: "a", Requests: 300, Violations: 0.3, Goodput: 7, P99: 3, Errors: map[string]int64{"x": 2}},
		{Policy: "a", Requests: 100, Violations: 0, Goodput: 8, P99: 2},
	}
	got := sumUp([]string{"b", "absent", "a"}, turns)
	if len(got) != 2 || got[0].Policy != "b" || got[0].Violations != 1 {
		t.Fatalf("%+v", got)
	}
	if a := got[1]; a.Turns != 3 || a.Requests != 500 || math.Abs(a.Violations-0.2) > 1e-12 || a.Goodput != 8 || a.P99 != 2 || a.Errors["x"] != 3 {
		t.Errorf("%+v", a)
	}
}

func TestPlaces(t *testing.T) {
	c := withPairs(Rehearsal())
	probe, worker := cutcost.ProbeSpec{}, segments.LoadSpec{}
	c.placeProbe(&probe)
	c.placeWorker(&worker)
	if top, tables, err := c.placeDaemon(); !c.rehearsal() || probe.Device != cutcost.CPU || worker.CUDA != nil || top != "device = \"cpu\"\n" || tables != "" || err != nil {
		t.Errorf("on the CPU: %+v, %+v, %q, %q, %v", probe, worker, top, tables, err)
	}
	c = withPairs(DefaultOptions())
	c.GPU = testDevice
	c.placeProbe(&probe)
	c.placeWorker(&worker)
	top, tables, err := c.placeDaemon()
	if c.rehearsal() || probe.Device != cutcost.CUDA || probe.GPU != testDevice || worker.CUDA == nil || err != nil {
		t.Errorf("on CUDA: %+v, %+v, %v", probe, worker, err)
	}
	if want := "device = \"cuda\"\ngpu = \"" + testDevice + "\"\n"; top != want || !strings.Contains(tables, "mode = \"off\"") {
		t.Errorf("%q, %q", top, tables)
	}
}

func TestCut(t *testing.T) {
	c := withPairs(DefaultOptions())
	c.report.Choices = []Choice{{Model: "a", Wanted: 0, Segments: 58}, {Model: "b", Wanted: 16, Segments: 16}}
	for model, want := range map[string]int{"a": 58, "b": 16, "c": 0} {
		if got := c.cut(model); got != want {
			t.Errorf("%s is cut into %d, want %d", model, got, want)
		}
	}
}

func TestDeviceName(t *testing.T) {
	c := withPairs(DefaultOptions())
	if c.deviceName() != "0" {
		t.Error("a device was chosen without facts")
	}
	c.report.Facts = &Facts{GPU: &cuda.Facts{Devices: []cuda.Device{
		{Index: 0, UUID: "GPU-aaaa-1", PCI: "00000000:3B:00.0"},
		{Index: 1, UUID: "GPU-bbbb-2", PCI: "00000000:5E:00.0", Instances: []cuda.Instance{
			{ID: 1, Compute: []cuda.ComputeInstance{{UUID: "MIG-cccc-3"}}},
		}},
	}}}
	for name, want := range map[string]string{
		"0": "GPU-aaaa-1", "1": "GPU-bbbb-2", "GPU-bbbb": "GPU-bbbb-2", "5e:00.0": "GPU-bbbb-2", "MIG-cccc": "MIG-cccc-3", "7": "7",
	} {
		c.GPU = name
		if got := c.deviceName(); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestLibrariesIn(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	for name, content := range map[string]string{
		"libcublas.so.13.0.2": "\x7fELF…", "libcudnn.so.9": "\x7fELF…", "libcufft.so.12": "INPUT(libother)", "libz.so.1": "\x7fELF…",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, link := range []string{filepath.Join(dir, "libcublas.so.13"), filepath.Join(other, "libcublas.so.13")} {
		if err := os.Symlink(filepath.Join(dir, "libcublas.so.13.0.2"), link); err != nil {
			t.Fatal(err)
		}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(real, "libcublas.so.13.0.2"), filepath.Join(real, "libcudnn.so.9")}
	if got := librariesIn([]string{dir, other, "/absent"}); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCopyState(t *testing.T) {
	from, to := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := copyState(from, to); err == nil {
		t.Error("a folder without a state file was copied")
	}
	if err := os.MkdirAll(filepath.Join(from, "optimized", "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{stateFile: "state", "optimized/a/model": "large", "other": "left"} {
		if err := os.WriteFile(filepath.Join(from, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := copyState(from, to); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, stateFile), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(from, stateFile): "state", filepath.Join(to, "optimized/a/model"): "large"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(to, "other")); err == nil {
		t.Error("more than needed was copied")
	}
}

func TestFollow(t *testing.T) {
	d := &daemon{}
	log := "not JSON\n" + `{"level":"info","message":"listening","address":"127.0.0.1:1"}` + "\n" + `{"message":"all services are ready"}` + "\n"
	if err := d.follow(strings.NewReader(log)); err != nil || d.url != "http://127.0.0.1:1" {
		t.Errorf("%q, %v", d.url, err)
	}
	err := new(daemon).follow(strings.NewReader("panic: oh\n" + `{"level":"error","message":"lost","error":"why"}` + "\n"))
	if err == nil || !strings.Contains(err.Error(), "panic: oh | lost: why") {
		t.Errorf("got %v", err)
	}
}

// TestTablesAreEven: what is in a cell never makes another one of it.
func TestTablesAreEven(t *testing.T) {
	odd := "a|b\nc<i>"
	r := withPairs(Rehearsal()).report
	r.Device = odd
	r.Steps = []StepResult{{Name: "x", Title: "X", Status: Failed, Error: odd}}
	r.Repeat = &Repeat{Group: "g"}
	r.Load = &LoadSetting{}
	r.Policies = []PolicyResult{{Policy: "p", Errors: map[string]int64{"b": 2, "a": 1}}}
	r.Outputs = []OutputRow{{Model: "m", Error: odd}, {Model: "n"}}
	r.judge()
	for _, table := range append(r.tables(), r.verdictTable(), r.stepTable()) {
		for _, row := range table.Rows {
			if len(row) != len(table.Head) {
				t.Errorf("%s: %d cells below %d heads: %q", table.Title, len(row), len(table.Head), row)
			}
		}
	}
	for line := range strings.Lines(string(r.markdown())) {
		if strings.HasPrefix(line, "|") && !strings.HasSuffix(line, "|\n") {
			t.Errorf("a cell ends a line: %q", line)
		}
	}
	html, err := r.page()
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(html, []byte("<i>")) || !bytes.Contains(html, []byte("1 a, 2 b")) {
		t.Error("the page has markup of a cell, or no errors by reason")
	}
}

// TestConfig holds the configuration of a daemon to the one in testdata, which the
// binary's tests have the daemon read.
func TestConfig(t *testing.T) {
	c := underFake(t, healthy)
	c.report.Pairs = withPairs(DefaultOptions()).report.Pairs
	c.Services = named("resnet50", "bert", "vgg16")
	for i := range c.Services {
		c.Services[i].Path = "/models/" + c.Services[i].Name + ".onnx"
	}
	c.report.Choices = []Choice{{Model: "bert", Segments: 64}}
	for _, name := range []string{"cuda_off.toml", "cuda_mps.toml"} {
		if name == "cuda_mps.toml" {
			if err := c.startMPS(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		path, err := c.writeConfig(dir)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ReplaceAll(string(data), dir, "/state")
		if c.mps != nil {
			pipe, err := c.mps.pipe()
			if err != nil {
				t.Fatal(err)
			}
			text = strings.ReplaceAll(text, pipe, "/run/mps/pipe")
			c.mps = nil
		}
		want, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil || text != string(want) {
			t.Errorf("%s should be\n%s\n%v", name, text, err)
		}
	}
	for _, f := range slices.Backward(c.mu.close) {
		if err := f(); err != nil {
			t.Error(err)
		}
	}
}

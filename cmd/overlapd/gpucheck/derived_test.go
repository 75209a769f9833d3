package gpucheck

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/cmd/overlapd/cutcost"
	"github.com/overlapd/overlapd/cuda"
)

// measured is a report of a GPU on which all is as it is taken to be.
func measured() *Report {
	return &Report{
		Facts: &Facts{GPU: &cuda.Facts{Driver: "580.65.06", NVML: "13", Devices: []cuda.Device{
			{MIG: cuda.MIG{Capable: true, Listed: true, Profiles: []cuda.Profile{{Name: "1g.10gb"}}}},
		}}},
		Outputs: []OutputRow{{Model: "m", Within: true, Deviation: cutcost.Deviation{RelToMax: 1e-5}}},
		Cuts: []CutRow{
			{Model: "m", Batch: 1, Wanted: 0, Segments: 60, CutMS: 2, DeviceMS: 1.9, Ratio: 1.2},
			{Model: "m", Batch: 1, Wanted: 16, Segments: 16, CutMS: 1.5, DeviceMS: 1.4, Ratio: 1.01},
		},
		Choices:  []Choice{{Model: "m", Segments: 16}},
		Sessions: []SessionRow{{Model: "m", Segments: 4, TakenBytes: 200 << 20}, {Model: "m", Segments: 24, TakenBytes: 300 << 20}},
		Variants: []VariantRow{{Model: "m", Variant: usualVariant, CutMS: 1.5}, {Model: "m", Variant: spinning, CutMS: 1.45}, {Model: "m", Variant: exhaustive, CutMS: 1.5}},
		Pairs:    []PairRow{{A: "m", B: "n", Batch: 1, AloneAMS: 1.5}, {A: "m", B: "n", Batch: 1, MPS: true, AloneAMS: 1.5}},
		Repeat:   &Repeat{Runs: 100, FirstMS: 2, P99MS: 2, MedianMS: 1.9, Spread: 0.03},
		Turns:    []Turn{{Round: 0, Policy: "edf", P50: 0.5}, {Round: 1, Policy: "edf", P50: 0.5}},
		Policies: []PolicyResult{{Policy: "edf"}},
		Steps:    []StepResult{{Status: Done, Seconds: 400}},
	}
}

func TestDerived(t *testing.T) {
	r := measured()
	all := r.derived()
	for _, l := range all {
		if l.Answer == Misses {
			t.Errorf("%+v", l)
		}
	}
	if !slices.Equal(all, r.derived()) {
		t.Error("it differs from time to time")
	}
	r.Rehearsal = true
	if got := r.derived(); got != nil {
		t.Errorf("a rehearsal shows %v", got)
	}
	if got := (&Report{}).derived(); len(got) > 0 {
		t.Errorf("nothing shows %v", got)
	}
}

// TestDerivedMisses: each thing that is otherwise is found out.
func TestDerivedMisses(t *testing.T) {
	for _, c := range []struct {
		ids    string
		change func(*Report)
	}{
		{"F1", func(r *Report) { r.Facts.GPU, r.Facts.GPUFault = nil, "no driver" }},
		{"F8", func(r *Report) { r.Facts.GPU.Devices[0].MIG.Listed = false }},
		{"F9", func(r *Report) { r.Facts.User, r.Facts.GPU.Devices[0].MIG.Profiles = 1000, nil }},
		{"C1 C2 C3 E2 E3 E4", func(r *Report) { r.Outputs[0].Error = "no kernel" }},
		{"C5 E1 E5 E6 E7 E8 E9 E21", func(r *Report) { r.Outputs[0].Within = false }},
		{"E1 E17", func(r *Report) { r.Cuts[0].DeviceMS = 1 }},
		{"E16", func(r *Report) { r.Cuts[1].Ratio = 1.3 }},
		{"E19", func(r *Report) { r.Variants[2].CutMS = 1 }},
		{"E17", func(r *Report) { r.Variants[1].CutMS = 1 }},
		{"E10", func(r *Report) { r.Sessions[1].TakenBytes = 4 << 30 }},
		{"C9", func(r *Report) { r.Pairs[0].AloneAMS = 3 }},
		{"C7", func(r *Report) { r.Pairs = r.Pairs[:1] }},
		{"E23", func(r *Report) { r.Repeat.FirstMS = 20 }},
		{"F3 P20", func(r *Report) { r.Repeat.Spread = 0.2 }},
		{"C6", func(r *Report) { r.Steps[0].Status = OutOfTime }},
	} {
		r := measured()
		c.change(r)
		misses := map[string]bool{}
		for _, l := range r.derived() {
			if l.Answer == Misses {
				misses[l.ID] = true
			}
		}
		for _, id := range strings.Fields(c.ids) {
			if !misses[id] {
				t.Errorf("%s: %s does not miss: %v", c.ids, id, misses)
			}
			delete(misses, id)
		}
		// Models that do not run show nothing of what follows from running.
		if len(misses) > 0 && c.ids[0] != 'C' {
			t.Errorf("%s: others miss: %v", c.ids, misses)
		}
	}
}

// TestAssumptionsAreLookedAt: the documentation says of each thing that is taken
// for granted which step looks at it, and the step does; or that none does.
func TestAssumptionsAreLookedAt(t *testing.T) {
	text, err := os.ReadFile("../../../docs/gpu-assumptions.md")
	if err != nil {
		t.Fatal(err)
	}
	var source strings.Builder
	for _, file := range []string{"derived.go", "mpslooks.go", "facts.go"} {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(data)
	}
	looked := map[string]bool{}
	for _, id := range regexp.MustCompile(`"([A-Z]\d+)"`).FindAllStringSubmatch(source.String(), -1) {
		looked[id[1]] = true
	}
	open := regexp.MustCompile(`(?m)^\| (\d+) \| ([A-Z]\d+) \|.*\| ([^|]+) \| ([^|]+) \|$`).FindAllStringSubmatch(string(text), -1)
	settled := regexp.MustCompile(`(?m)^\| ([A-Z]\d+) \| [^|]+ \| ([^|]+) \|$`).FindAllStringSubmatch(string(text), -1)
	if len(open)+len(settled) < 70 {
		t.Errorf("only %d and %d things are taken for granted", len(open), len(settled))
	}
	seen := map[string]bool{}
	once := func(id string) {
		if seen[id] {
			t.Errorf("%s is there twice", id)
		}
		seen[id] = true
	}
	for i, row := range open {
		rank, id, lookAt, remedy := row[1], row[2], row[3], row[4]
		once(id)
		if rank != fmt.Sprint(i+1) || len(remedy) < len("the same") {
			t.Errorf("%s has number %s, want %d, and %q if it does not hold", id, rank, i+1, remedy)
		}
		if byHand := strings.HasPrefix(lookAt, "by hand: "); byHand == looked[id] {
			t.Errorf("%s is looked at: %t; the documentation says %q", id, looked[id], lookAt)
		}
		delete(looked, id)
	}
	for _, row := range settled {
		once(row[1])
		if !regexp.MustCompile(`^(MPS|MIG User Guide|NVML API Reference|CUDA Runtime API), "?\w`).MatchString(row[2]) {
			t.Errorf("%s names no document: %q", row[1], row[2])
		}
		delete(looked, row[1])
	}
	for id := range looked {
		t.Errorf("%s is looked at and not in the documentation", id)
	}
}

func TestLooksAreSaved(t *testing.T) {
	r := measured()
	r.Looks = []Look{{"P1", strings.Repeat("é", sawMax), Holds}}
	dir := t.TempDir()
	if err := r.save(dir); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(dir + "/" + JSONName)
	if err != nil {
		t.Fatal(err)
	}
	var saved Report
	if err := json.Unmarshal(data, &saved); err != nil || len(saved.Looks) != 1 || len(saved.Assumed) != len(r.derived()) {
		t.Errorf("saved %v %v, %v", saved.Looks, saved.Assumed, err)
	}
	c := &check{report: &Report{}}
	c.see("P1", "%s", strings.Repeat("é", sawMax))
	if saw := c.report.Looks[0].Saw; len(saw) > sawMax+4 || !strings.HasSuffix(saw, "é…") {
		t.Errorf("saw %d bytes", len(saw))
	}
	if page, err := os.ReadFile(dir + "/" + PageName); err != nil || !strings.Contains(string(page), "What is taken for granted") {
		t.Errorf("the page has no looks, %v", err)
	}
}

package reproduce

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/internal/stats"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares text with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		writeFile(t, path, got)
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (rewrite it with -update):\n%s", name, d)
	}
}

// example is a result as small as it can be.
func example() *Result {
	f := &figure{Figure: "15", Title: "violations", Unit: "violations", decimals: 4, percent: true, Notes: []string{"a < b"}}
	add := func(name, policy string, ours, authors float64) {
		f.Rows = append(f.Rows, row{Case: name, QPS: 100, Policy: policy, Ours: rounded(ours), Spread: rounded(0.01), Authors: rounded(authors)})
	}
	add("Res50+Bert", "fcfs-authors", 0.4, 0.3)
	add("Res50+Bert", "abacus-authors", 0.2, 0.1)
	add("VGG16+VGG19", "fcfs-authors", 0.2, 0.5)
	add("VGG16+VGG19", "abacus-authors", 0.1, 0.1)
	f.addMeans(caseMean, stats.Mean)
	f.compare(caseMean, 100, overlapping, sequentials, pairViolations.compared[1].says)
	return &Result{
		Label: emulatedLabel, Commit: "none", Data: strings.Repeat("0", 64), Device: deviceName, Seed: 1, Seeds: 2, Queries: 10,
		Policies: []policy{{"fcfs-authors", "first"}, {"abacus-authors", "the paper's"}}, Figures: []*figure{f}, Missing: []missing{{"20 and 21", "MIG", figureMIG}},
	}
}

func TestOutputs(t *testing.T) {
	r := example()
	var text, object, tables strings.Builder
	if err := errors.Join(r.Document().WriteText(&text), report.WriteJSON(&object, r), r.WriteMarkdown(&tables)); err != nil {
		t.Fatal(err)
	}
	golden(t, "result.md", tables.String())
	golden(t, "result.txt", text.String())
	golden(t, "result.json", object.String())
}

func TestHighest(t *testing.T) {
	for _, limit := range []float64{7, 50, 113, 600} {
		asked := 0
		got, err := highest(func(qps float64) (float64, error) {
			asked++
			if qps <= limit {
				return mostViolations, nil
			}
			return 0.5, nil
		})
		if err != nil || got > limit || got < limit*0.97 || asked != bisections {
			t.Errorf("%v: %v, %v after %d loads", limit, got, err, asked)
		}
	}
	broken := errors.New("broken")
	if _, err := highest(func(float64) (float64, error) { return 0, broken }); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

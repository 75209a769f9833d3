package selection

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// paperVariants returns the variants of RAMSIS, and skips the test where they are not at hand.
func paperVariants(t testing.TB, task string, n int) []Variant {
	t.Helper()
	folder := filepath.Join(cmp.Or(os.Getenv("OVERLAPD_SHARED_DATA"), filepath.Join("..", "..", "shared", "data")), "ramsis")
	if _, err := os.Stat(folder); err != nil {
		t.Skipf("the measurements of RAMSIS are not at hand (%v): name the folder that has them in OVERLAPD_SHARED_DATA", err)
	}
	variants, err := ReadRAMSIS(folder, task)
	if err != nil {
		t.Fatal(err)
	}
	return Resize(Front(variants), n)
}

// BenchmarkTable2 is how long a policy takes (RAMSIS, table 2): 132 s, 115 s and 1,355 s there,
// and 3,015 s with variable batches.
func BenchmarkTable2(b *testing.B) {
	for _, at := range []struct {
		models, levels int
		variable       bool
	}{{9, 100, false}, {9, 0, false}, {60, 100, false}, {9, 10, false}, {9, 100, true}} {
		for _, target := range []float64{150, 500} {
			for _, load := range []float64{400, 2000, 3600} {
				b.Run(fmt.Sprintf("variable=%v/models=%d/levels=%d/target=%v/load=%v", at.variable, at.models, at.levels, target, load), func(b *testing.B) {
					w := Worker{Variants: paperVariants(b, "image", at.models), Target: target, Workers: 60, Rate: load, CV: 1, Queue: 32, Levels: at.levels, Variable: at.variable}
					for b.Loop() {
						p, err := w.Solve(b.Context())
						if err != nil {
							b.Fatal(err)
						}
						b.ReportMetric(float64(p.States), "states")
						b.ReportMetric(p.Accuracy, "accuracy")
						b.ReportMetric(100*p.Violations, "%late")
					}
				})
			}
		}
	}
}

func BenchmarkChoose(b *testing.B) {
	w := small(3, 60, 1, 100)
	p, err := w.Solve(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	slack := 0.0
	for b.Loop() {
		p.Choose(3, slack)
		if slack += 0.7; slack > w.Target {
			slack = 0
		}
	}
}

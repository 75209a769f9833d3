package reproduce

import (
	"math"
	"os"
	"testing"

	"github.com/overlapd/overlapd/internal/stats"
)

// TestSharedData reads what the authors of Abacus measured and published.
func TestSharedData(t *testing.T) {
	root := os.Getenv("OVERLAPD_SHARED_DATA")
	if root == "" {
		t.Skip("OVERLAPD_SHARED_DATA does not name the folder with the measurements")
	}
	d, err := readData(root)
	if err != nil {
		t.Fatal(err)
	}
	s := &stock{measured: d.pairs}
	for load, want := range map[float64]map[string]float64{
		calmLoad: {"fcfs-authors": 5.6, "sjf-authors": 13.9, "edf-authors": 8.2, "abacus-authors": 1.1},
		fullLoad: {"fcfs-authors": 46.5, "sjf-authors": 55.3, "edf-authors": 45.5, "abacus-authors": 21.8},
	} {
		deploys := s.pairs(load)
		if len(deploys) != 21 || len(d.authors[load]) != 21 {
			t.Fatalf("%d pairs, %d results", len(deploys), len(d.authors[load]))
		}
		for policy, mid := range want {
			var list []float64
			for i := range deploys {
				list = append(list, 100*d.authors[load][deploys[i].label()][policy].violations)
			}
			if math.Abs(stats.Mean(list)-mid) > 0.051 {
				t.Errorf("%s at %g: %.2f %%, want %.1f %%", policy, load, stats.Mean(list), mid)
			}
		}
	}
	a, b := halve(d.pairs, 1)
	if len(a.Rows)+len(b.Rows) != len(d.pairs.Rows) || len(a.Without(b).Rows) < len(a.Rows)*99/100 {
		t.Errorf("halves of %d and %d rows have some in common", len(a.Rows), len(b.Rows))
	}
	together, err := d.beyondPairs()
	if err != nil || len(together.Models) != len(quadModels) || len(together.Rows) < len(d.quad.Rows) {
		t.Errorf("%v: %+v", err, together.Models)
	}
	if len(d.minutes) != 120 {
		t.Errorf("%d minutes", len(d.minutes))
	}
}

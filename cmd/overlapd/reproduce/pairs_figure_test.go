package reproduce

import "testing"

func TestBoundsStandBesideRuns(t *testing.T) {
	made := madeRuns(map[string][2]float64{"fcfs": {0.4, 0.4}})
	f := &figure{}
	made.addBounds(f)
	if len(f.Rows)+len(f.Notes) != 0 {
		t.Errorf("without bounds: %+v", f)
	}
	made.bounds = bounds{}
	for i, pair := range []string{"Res50+Bert", "VGG16+VGG19"} {
		for _, load := range loads {
			made.bounds[runKey(pair, load, boundMerged)] = []float64{0.1 * float64(i)}
			made.bounds[runKey(pair, load, boundUnmerged)] = []float64{0.2 * float64(i), 0.4 * float64(i)}
		}
	}
	made.addBounds(f)
	for series, want := range map[string]float64{boundMerged: 0.05, boundUnmerged: 0.15} {
		if row := f.find(caseMean, fullLoad, series); row == nil || *row.Ours != want {
			t.Errorf("%s: %+v, want %v", series, row, want)
		}
	}
	if row := f.find("VGG16+VGG19", calmLoad, boundUnmerged); row == nil || *row.Ours != 0.3 || *row.Spread == 0 {
		t.Errorf("%+v", row)
	}
}

// TestBoundIsKept holds runs to what no schedule does better than.
func TestBoundIsKept(t *testing.T) {
	o := quick(t, drawnData(t))
	o.Figures, o.Policies, o.Queries, o.Seeds = []string{"15"}, []string{"overlap-unmerged", "overlap"}, 100, 1
	f := reproduce(t, o).Figures[0]
	for _, load := range []float64{calmLoad, fullLoad} {
		for series, policy := range map[string]string{boundUnmerged: "overlap-unmerged", boundMerged: "overlap"} {
			least, got := f.find("Res50+Res101", load, series), f.find("Res50+Res101", load, policy)
			if least == nil || got == nil || *least.Ours > *got.Ours+0.02 {
				t.Errorf("%s at %v: %+v, bound %+v", policy, load, got, least)
			}
		}
	}
}

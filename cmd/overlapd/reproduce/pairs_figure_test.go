package reproduce

import (
	"testing"

	"github.com/overlapd/overlapd/sim"
)

func TestBoundsStandBesideRuns(t *testing.T) {
	f := &figure{}
	f.addBounds(nil)
	if len(f.Rows)+len(f.Notes) != 0 {
		t.Errorf("without bounds: %+v", f)
	}
	var bounds []*served
	for i, models := range [][]string{{"resnet50", "bert"}, {"vgg16", "vgg19"}} {
		for _, load := range loads {
			for k, series := range []string{boundMerged, boundUnmerged} {
				result := new(sim.Result)
				result.Violations = 0.1 * float64(i) * float64(k+1)
				bounds = append(bounds, &served{&deployment{models: models, load: load}, series, []*sim.Result{result}})
			}
		}
	}
	f.addBounds(bounds)
	for series, want := range map[string]float64{boundMerged: 0.05, boundUnmerged: 0.1} {
		if row := f.find(caseMean, fullLoad, series); row == nil || *row.Ours != want {
			t.Errorf("%s: %+v, want %v", series, row, want)
		}
	}
	if row := f.find("VGG16+VGG19", calmLoad, boundUnmerged); row == nil || *row.Ours != 0.2 || *row.Spread != 0 {
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

package reproduce

import (
	"testing"

	"github.com/overlapd/overlapd/lab/sim"
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

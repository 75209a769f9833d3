package reproduce

import (
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/executor/emulated/device"
)

func TestSweepTriesEveryShareOnce(t *testing.T) {
	var tried []int
	if err := sweep(func(first int) error { tried = append(tried, first); return nil }); err != nil {
		t.Fatal(err)
	}
	if tried[0] != 50 || tried[1] != 45 {
		t.Errorf("begins with %v", tried[:2])
	}
	slices.Sort(tried)
	var want []int
	for share := 5; share <= 95; share += 5 {
		want = append(want, share)
	}
	if !slices.Equal(tried, want) {
		t.Errorf("tried %v", tried)
	}
}

// On a device that a service alone keeps busy, a share is slower by what it lacks. So a
// split bears less than edf does there, and gives most to who needs most.
func TestStaticFigure(t *testing.T) {
	s := stockOf([]string{"resnet50", "resnet101"})
	var err error
	if s.profile, err = device.Linear("gpu", "resnet50,0.05,1\nresnet101,0.6,1\n"); err != nil {
		t.Fatal(err)
	}
	o := fewOptions()
	o.Seeds, o.Queries = 1, 200
	r := runOf(o, s, "edf", "overlap")
	draw := planStatic(r)
	if err := r.plan.run(t.Context(), newLane, newTally(nil, 1)); err != nil {
		t.Fatal(err)
	}
	list := draw()
	f := figureNamed(t, list, "static")
	split, edf := f.find("Res50+Res101", 0, "static"), f.find("Res50+Res101", 0, "edf")
	if split == nil || edf == nil || *split.Ours < 2*leastQPS || *split.Ours >= *edf.Ours {
		t.Fatalf("%+v", f.Rows)
	}
	note := strings.Join(f.Notes, "\n")
	if !strings.Contains(note, "in 0 of 1 pairs") || f.find(caseMean, 0, "static") == nil {
		t.Errorf("%v", f)
	}
	if !slices.ContainsFunc([]string{"5", "10", "15", "20", "25", "30"}, func(share string) bool {
		return strings.Contains(note, "Shares of the first model, percent: Res50+Res101 "+share+".")
	}) {
		t.Errorf("the small model has not the small share: %s", note)
	}
	v := figureNamed(t, list, "static violations")
	if v.find("Res50+Res101", fullLoad, "static") == nil || v.find("Res50+Res101", calmLoad, "overlap") == nil {
		t.Errorf("%+v", v.Rows)
	}
}

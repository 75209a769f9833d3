package loop

import (
	"slices"
	"testing"

	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/segments/wire"
)

func TestCutStatus(t *testing.T) {
	if cutStatus(nil) != nil || cutStatus(&wire.Info{}) != nil {
		t.Error("nothing was chosen")
	}
	o := cutStatus(&wire.Info{Cut: &wire.CutChoice{Reason: "why", Costs: []wire.CutCost{{Segments: 4, Batch: 8, WholeNanos: 2e6, CutNanos: 3e6}}}})
	if o.Reason != "why" || !slices.Equal(o.Costs, []status.CutCost{{Operators: 4, Batch: 8, WholeMS: 2, CutMS: 3, Percent: 50}}) {
		t.Errorf("%+v", o)
	}
}

package planning

import (
	"strings"
	"testing"

	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/planning/selection"
)

// TestLargeNumbers writes rates without exponents.
func TestLargeNumbers(t *testing.T) {
	p := &selection.Policy{Rate: 496_612.3, Accuracy: 76.2}
	d := new(report.Document)
	overLoad(d, &selection.Set{Policies: []*selection.Policy{p, p}})
	var b strings.Builder
	if err := d.WriteText(&b); err != nil || !strings.Contains(b.String(), "496600") || strings.Contains(b.String(), "e+") {
		t.Errorf("got %v and printed\n%s", err, b.String())
	}
}

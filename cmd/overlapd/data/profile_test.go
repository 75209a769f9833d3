package data

import (
	"slices"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/training"
)

// TestDriftText counts one check as one.
func TestDriftText(t *testing.T) {
	r := loop.Report{Progress: training.Progress{Done: 1, Total: 1}}
	r.Progress.Drift.Checks = slices.Grow(r.Progress.Drift.Checks, 1)[:1]
	var b strings.Builder
	if err := new(profileOptions).report(&b, &r, "", t.Context()); err != nil || !strings.Contains(b.String(), "at worst, in 1 check\n") {
		t.Errorf("got %v and printed %s", err, b.String())
	}
}

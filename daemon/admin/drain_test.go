package admin

import (
	"maps"
	"strings"
	"testing"
)

// Draining is started, shown and cancelled, and an error of the daemon is reported.
func TestDrain(t *testing.T) {
	f := newFakeDaemon(nothing)
	c := f.serve(t, nil)
	for _, step := range []struct {
		do     string
		leaves bool
	}{{DrainShow, false}, {DrainBegin, true}, {DrainShow, true}, {DrainBegin, true}, {DrainCancel, false}} {
		open, ended, err := c.Drain(t.Context(), step.do)
		if err != nil || ended != 7 || !maps.Equal(open, map[string]int64{"a": 2}) || f.leaves != step.leaves {
			t.Errorf("%s: %v, %d, %v; it leaves: %t", step.do, open, ended, err, f.leaves)
		}
	}
	f.hides = ErrBusy
	if _, _, err := c.Drain(t.Context(), DrainBegin); err == nil || !strings.Contains(err.Error(), ErrBusy.Message) {
		t.Error(err)
	}
}

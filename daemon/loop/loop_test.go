package loop

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

func TestNobodyListens(t *testing.T) {
	l := &loop{core: &core{}}
	l.emit(observe.Event{Kind: observe.Woke})
	l.rest()
	if l.beat.Load() == 0 {
		t.Error("without listeners the loop does not show that it is alive")
	}
}

// What a group takes one after another is not known while one of its spans is
// not.
func TestSoloTimes(t *testing.T) {
	solo, err := predictor.NewSolo(4, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	for id := range models.ServiceID(2) {
		if err := solo.SetOperators(id, 1, 0, []int64{1e6, 2e6, 3e6, 4e6}); err != nil {
			t.Fatal(err)
		}
	}
	l := &loop{core: &core{solo: solo}}
	r := &overlap.Round{Group: models.Group{Spans: []models.Span{{Service: 0, End: 4, Size: 1}, {Service: 1, End: 4, Size: 1}}}}
	if got := l.soloOf(r); got != 20e6 {
		t.Errorf("%v, want 20ms", got)
	}
	r.Group.Spans[1].Service = 2
	if got := l.soloOf(r); got != 0 {
		t.Errorf("of an unknown service %v", got)
	}
}

func TestProfileKeyTellsEverythingApart(t *testing.T) {
	keys := map[string]bool{}
	for _, of := range []struct {
		device, hash, ort string
		operators         int
		share             string
	}{
		{"a", "h", "1", 3, "2 threads"}, {"b", "h", "1", 3, "2 threads"}, {"a", "i", "1", 3, "2 threads"},
		{"a", "h", "2", 3, "2 threads"}, {"a", "h", "1", 4, "2 threads"}, {"a", "h", "1", 3, "1 threads"},
	} {
		c := &core{Options: Options{Device: of.device}}
		keys[c.profileKey(of.share, &wire.Info{Hash: of.hash, ORTVersion: of.ort, Operators: make([]models.Operator, of.operators)})] = true
	}
	if len(keys) != 6 {
		t.Errorf("%d keys of 6 profiles: %v", len(keys), keys)
	}
}

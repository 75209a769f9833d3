package loop

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

func TestNobodyListens(t *testing.T) {
	l := &loop{env: &env{mail: newMailbox()}}
	l.env.emit(observe.Event{Kind: observe.Woke})
	l.rest()
	if l.env.mail.beat.Load() == 0 {
		t.Error("without listeners the loop does not show that it is alive")
	}
}

// What a group takes apart is not known while a span of it is not, and nothing to ask
// about where one query runs alone. A batch of several queries counts as merged.
func TestTimesApart(t *testing.T) {
	solo, err := predictor.NewSolo(4, 4, 4)
	if err != nil {
		t.Fatal(err)
	}
	for id := range models.ServiceID(2) {
		for size, times := range map[int]time.Duration{1: 1e6, 2: 1.5e6, 4: 2e6} {
			if err := solo.SetOperators(id, size, 0, []int64{int64(times), int64(2 * times), int64(3 * times), int64(4 * times)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	l := &loop{env: &env{}, calls: &calls{pending: map[models.QueryID]*pending{}}}
	for id, size := range map[models.QueryID]int{1: 1, 2: 1, 3: 2, 4: 1, 5: 1} {
		l.calls.pending[id] = &pending{call: &query.Call{Size: size}}
	}
	round := func(queries [][]models.QueryID, spans ...models.Span) *overlap.Round {
		return &overlap.Round{Group: models.Group{Spans: spans}, Queries: queries}
	}
	const ms = time.Millisecond
	for name, tt := range map[string]struct {
		round *overlap.Round
		want  observe.Apart
	}{
		"one query":        {round([][]models.QueryID{{1}}, models.Span{End: 4, Size: 1}), observe.Apart{}},
		"two of two":       {round([][]models.QueryID{{4}, {5}}, models.Span{End: 4, Size: 1}, models.Span{Service: 1, End: 2, Size: 1}), observe.Apart{Spans: 13 * ms, Queries: 13 * ms}},
		"back to back":     {round([][]models.QueryID{{1, 2}}, models.Span{End: 4, Size: 1}), observe.Apart{Spans: 20 * ms, Queries: 20 * ms}},
		"merged":           {round([][]models.QueryID{{1, 2, 3}}, models.Span{End: 4, Size: 4}), observe.Apart{Spans: 20 * ms, Queries: 35 * ms}},
		"part of it":       {round([][]models.QueryID{{1, 2, 3}}, models.Span{Start: 3, End: 4, Size: 4}), observe.Apart{Spans: 8 * ms, Queries: 14 * ms}},
		"merged, beside":   {round([][]models.QueryID{{1, 3, 2}, {4}}, models.Span{End: 4, Size: 4}, models.Span{Service: 1, End: 4, Size: 1}), observe.Apart{Spans: 30 * ms, Queries: 45 * ms}},
		"one was given up": {round([][]models.QueryID{{1, 99}}, models.Span{End: 4, Size: 2}), observe.Apart{Spans: 15 * ms, Queries: 10 * ms}},
		"one is unknown":   {round([][]models.QueryID{{4}, {5}}, models.Span{End: 4, Size: 1}, models.Span{Service: 2, End: 4, Size: 1}), observe.Apart{}},
	} {
		if got := l.apartOf(solo, tt.round); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
		if n := testing.AllocsPerRun(10, func() { l.apartOf(solo, tt.round) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
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
		k := &kind{devices: []*device{{Device: Device{Text: of.device}}}}
		key := k.profileKey(of.share, &wire.Info{Hash: of.hash, ORTVersion: of.ort, Operators: make([]models.Operator, of.operators)})
		keys[key] = true
		if is := ProfileOf(key, models.MeasuredOn("a", "1"), models.MeasuredAs("h", "2 threads")); is != (of.device+of.hash+of.ort+of.share == "ah12 threads") {
			t.Errorf("%s: %v", key, is)
		}
	}
	if len(keys) != 6 {
		t.Errorf("%d keys of 6 profiles: %v", len(keys), keys)
	}
}

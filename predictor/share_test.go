package predictor

import (
	"reflect"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// newShared returns a predictor for two services on a device of four units.
func newShared(t *testing.T) (*Predictor, *Solo) {
	t.Helper()
	solo, err := NewSolo(2, 2)
	if err != nil {
		t.Fatal(err)
	}
	solo.Divide(4)
	for id := range models.ServiceID(2) {
		if err := solo.SetOperators(id, 1, 0, []int64{10e6, 10e6}); err != nil {
			t.Fatal(err)
		}
	}
	return New(solo), solo
}

func whole(share int) models.Span { return models.Span{End: 2, Size: 1, Share: share} }

// A share of which nothing is known takes as much longer as it has fewer units, and one that was measured
// what it took, also after a restart, and until the service has another model.
func TestShares(t *testing.T) {
	_, solo := newShared(t)
	took := func(s *Solo, share int) time.Duration {
		d, _ := s.Span(whole(share))
		return d
	}
	for share, want := range map[int]time.Duration{0: 20 * time.Millisecond, 1: 80 * time.Millisecond, 2: 40 * time.Millisecond} {
		if got := took(solo, share); got != want {
			t.Errorf("on %d units of which nothing is known it takes %v, want %v", share, got, want)
		}
	}
	if err := solo.On(1).SetOperators(0, 1, 0, []int64{20e6, 30e6}); err != nil {
		t.Fatal(err)
	}
	kept, err := solo.Snapshot(0)
	if err != nil {
		t.Fatal(err)
	}
	_, other := newShared(t)
	if err := other.Restore(0, kept); err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*Solo{"": solo, " after a restart": other} {
		if got := took(s, 1); got != 50*time.Millisecond || took(s, 2) != 40*time.Millisecond {
			t.Errorf("on one unit%s it takes %v, measured 50 ms", name, got)
		}
	}
	if again, err := other.Snapshot(0); err != nil || !reflect.DeepEqual(again, kept) {
		t.Errorf("%+v was restored as %+v: %v", kept, again, err)
	}
	if err := solo.Reset(0, 2); err != nil {
		t.Fatal(err)
	}
	if got := took(solo, 1); got != 0 {
		t.Errorf("of another model on one unit %v is known", got)
	}
}

// What runs beside a span is learned as what it adds, and leaves the isolated latency as it is. That
// is corrected where it was too high, beside others as well.
func TestBeside(t *testing.T) {
	p, solo := newShared(t)
	if err := solo.On(1).SetOperators(0, 1, 0, []int64{25e6, 25e6}); err != nil {
		t.Fatal(err)
	}
	estimate := func(beside ...models.ServiceID) models.Estimate {
		var e [1]models.Estimate
		p.Predict([]models.Group{{Spans: []models.Span{whole(1)}, Beside: beside}}, e[:])
		return e[0]
	}
	observe := func(took time.Duration, runs int) {
		for i := range runs {
			if err := p.Observe(time.Duration(i)*time.Second/10, models.Group{Spans: []models.Span{whole(1)}, Beside: []models.ServiceID{1}}, took); err != nil {
				t.Fatal(err)
			}
		}
	}
	if e := estimate(1); e.Latency != 50*time.Millisecond {
		t.Errorf("beside what was never seen it takes %v, want its isolated latency", e.Latency)
	}
	observe(60*time.Millisecond, 100)
	near := func(got, want time.Duration) bool { return got > want*9/10 && got < want*11/10 }
	if e, alone := estimate(1), estimate(); !near(e.Latency, 60*time.Millisecond) || !near(alone.Latency, 52*time.Millisecond) {
		t.Errorf("beside the other it takes %v and alone %v, want 60 ms and about 50", e.Latency, alone.Latency)
	}
	observe(30*time.Millisecond, 100)
	if e, alone := estimate(1), estimate(); !near(e.Latency, 30*time.Millisecond) || alone.Latency > 40*time.Millisecond {
		t.Errorf("after 100 runs of 30 ms it takes %v beside the other and %v alone", e.Latency, alone.Latency)
	}
	if r := p.Report(false); r.Answers["beside"] == 0 {
		t.Errorf("answers %v", r.Answers)
	}
}

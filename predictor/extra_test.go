package predictor

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// resized is a span of ten operators, which take a millisecond, of another size than the
// last run of its service.
func resized(service models.ServiceID) models.Span {
	s := span(service, 0, 10, 1, 0)
	s.Resized = true
	return s
}

// A change that costs is learned, from rounds with and without one, and leaves alone what
// is known of the operators.
func TestLearnsChange(t *testing.T) {
	p := newSerial(t, 3)
	plain := span(0, 0, 10, 1, 0)
	for range 20 {
		teach(t, p, 1, 41*time.Millisecond, resized(0))
		teach(t, p, 2, time.Millisecond, plain)
	}
	e := ask(p, resized(0))
	for _, c := range []struct {
		got  models.Estimate
		want time.Duration
	}{
		{ask(p, plain), time.Millisecond}, {e, 41 * time.Millisecond}, {ask(p, resized(0), span(2, 0, 10, 1, 0)), 42 * time.Millisecond},
	} {
		if off := c.got.Latency - c.want; off.Abs() > c.want/100 || c.got.Bound > c.got.Latency+time.Millisecond/4 {
			t.Errorf("%v, want %v", c.got, c.want)
		}
	}
	if e.Resizing < 39*time.Millisecond || e.Resizing > 41*time.Millisecond || ask(p, resized(2)).Resizing != 0 {
		t.Errorf("a change is said to take %v, of a service that never changed %v", e.Resizing, ask(p, resized(2)).Resizing)
	}
	if err := p.Reset(0, 10); err != nil {
		t.Fatal(err)
	}
	if p.extras.resized[0].nanos != 0 {
		t.Error("what changes of a model cost is believed of the next")
	}
}

// Two services that change in one round share what it takes more, by what is known of each.
func TestSharesChanges(t *testing.T) {
	p := newSerial(t, 3)
	for range 20 {
		teach(t, p, 1, 31*time.Millisecond, resized(0))
		teach(t, p, 1, 42*time.Millisecond, resized(0), resized(2))
		teach(t, p, 1, time.Millisecond, span(0, 0, 10, 1, 0))
		teach(t, p, 1, time.Millisecond, span(2, 0, 10, 1, 0))
	}
	a, b := ask(p, resized(0)).Resizing, ask(p, resized(2)).Resizing
	if a < 28*time.Millisecond || a > 32*time.Millisecond || b < 8*time.Millisecond || b > 12*time.Millisecond {
		t.Errorf("changes take %v and %v, want about 30 ms and 10 ms", a, b)
	}
}

// Where each round changes a size nothing else can be known, until it is avoided.
func TestLearnsChangeThatAlwaysHappens(t *testing.T) {
	p := newSerial(t, 1)
	teach(t, p, extraEnough, 41*time.Millisecond, resized(0))
	if e := ask(p, resized(0)); e.Resizing < 30*time.Millisecond {
		t.Errorf("a change is said to take %v", e.Resizing)
	}
	teach(t, p, 40, 41*time.Millisecond, span(0, 0, 10, 1, 0))
	teach(t, p, extraRuns, 41*time.Millisecond, resized(0))
	if e := ask(p, resized(0)); e.Resizing != 0 {
		t.Errorf("the device is slow: a change is said to take %v", e.Resizing)
	}
}

// A predictor that ignores what ran before learns nothing of it.
func TestIgnoreHistory(t *testing.T) {
	p := newSerial(t, 1)
	p.IgnoreHistory()
	for range 2 * extraRuns {
		teach(t, p, 1, time.Millisecond, span(0, 0, 10, 1, 0))
		teach(t, p, 1, 41*time.Millisecond, resized(0))
	}
	if e := ask(p, resized(0)); e.Resizing != 0 {
		t.Errorf("a change is said to take %v", e.Resizing)
	}
}

// A device that becomes slower, or runs that differ, are no changes.
func TestSlowDeviceIsNoChange(t *testing.T) {
	p := newSerial(t, 1)
	for i := range 200 {
		took := time.Millisecond + time.Duration(i%7)*20*time.Microsecond
		if i > 100 {
			took += took * 3 / 5
		}
		if s := span(0, 0, 10, 1, 0); i%3 > 0 {
			teach(t, p, 1, took, s)
		} else {
			teach(t, p, 1, took, resized(0))
		}
		if e := ask(p, resized(0)); e.Resizing != 0 {
			t.Fatalf("after run %d a change is said to take %v", i, e.Resizing)
		}
	}
}

// What a pause costs is learned for pauses of about its length.
func TestLearnsPause(t *testing.T) {
	p := newSerial(t, 1)
	run := func(idle, took time.Duration) {
		t.Helper()
		if err := p.Observe(0, models.Group{Spans: []models.Span{span(0, 0, 10, 1, 0)}, Idle: idle}, took); err != nil {
			t.Fatal(err)
		}
	}
	for range 10 {
		run(0, time.Millisecond)
		run(20*time.Millisecond, time.Millisecond)
		run(300*time.Millisecond, 6*time.Millisecond)
		run(time.Hour, 11*time.Millisecond)
	}
	for idle, want := range map[time.Duration]time.Duration{
		0: time.Millisecond, 5 * time.Millisecond: time.Millisecond, 90 * time.Millisecond: time.Millisecond, 100 * time.Millisecond: 6 * time.Millisecond,
		999 * time.Millisecond: 6 * time.Millisecond, 5 * time.Second: time.Millisecond, time.Minute: 11 * time.Millisecond,
	} {
		e := []models.Estimate{{}}
		p.Predict([]models.Group{{Spans: []models.Span{span(0, 0, 10, 1, 0)}, Idle: idle}}, e)
		if e[0].Waking > 0 != (want > time.Millisecond) {
			t.Errorf("after a pause of %v %v of a run are said to be of waking", idle, e[0].Waking)
		}
		if off := e[0].Latency - want; off.Abs() > want/20 {
			t.Errorf("after a pause of %v a run is predicted to take %v, want %v", idle, e[0].Latency, want)
		}
	}
}

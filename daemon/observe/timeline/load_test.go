package timeline

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// loadRig has a ring see what two services ask of two devices. The second promises
// nothing.
type loadRig struct {
	*Ring
	t   *testing.T
	now time.Duration
}

func newLoadRig(t *testing.T) *loadRig {
	return &loadRig{New(time.Now(), []models.Service{{Name: "a"}, {ID: 1, Name: "b", BestEffort: true}}, "left", "right"), t, 0}
}

// round has a round end on a device that took so long, with spans of the services that
// were so long in the engine.
func (r *loadRig) round(device int, took time.Duration, spans ...time.Duration) {
	o := &models.Outcome{Device: device, Took: took}
	for i, s := range spans {
		o.Spans = append(o.Spans, models.SpanOutcome{Span: models.Span{Service: models.ServiceID(i)}, Took: s})
	}
	gain := observe.Gain{}
	if len(spans) > 1 {
		gain.Overlap = took // apart they would have taken twice as long
	}
	r.Observe(&observe.Event{Kind: observe.Ended, At: r.now, Outcome: o, Gain: gain})
}

// queries has so many queries of a service be over, with this part of their time left.
func (r *loadRig) queries(service models.ServiceID, n int, left float64, result overlap.Result, reason overlap.Reason) {
	const allowed = 100 * time.Millisecond
	for range n {
		s := query.NewService(service, "")
		s.QoSTarget = allowed
		c := &query.Call{Service: s, Arrival: r.epoch.Add(r.now - time.Duration((1-left)*float64(allowed)))}
		r.Observe(&observe.Event{Kind: observe.Answered, Call: c, Answer: &overlap.Answer{Service: service, Result: result, Reason: reason, At: r.now}})
	}
}

func (r *loadRig) finished(service models.ServiceID, n int, left float64) {
	r.queries(service, n, left, overlap.Finished, overlap.ReasonNone)
}

// until lets time go by, in turns a second apart.
func (r *loadRig) until(at time.Duration, each func()) {
	for ; r.now < at; r.now += time.Second {
		each()
		r.Observe(&observe.Event{Kind: observe.Rested, At: r.now})
	}
}

func (r *loadRig) loads() *status.Load {
	r.Observe(&observe.Event{Kind: observe.Rested, At: r.now})
	return r.Load(true)
}

func near(got, want float64) bool { return math.Abs(got-want) < 0.02 }

// The demand is N(1-f) while queries are answered in time, f being the share of time in
// which the devices are idle, and the time of a round is divided among its services.
func TestDemandOfIdleDevices(t *testing.T) {
	r := newLoadRig(t)
	r.until(3*loadWindow, func() {
		r.round(0, 250*time.Millisecond, 100*time.Millisecond)
		r.round(0, 250*time.Millisecond, 200*time.Millisecond, 50*time.Millisecond)
		r.round(1, 250*time.Millisecond, 0)
		r.finished(0, 99, 0.58)
		r.finished(0, 1, 0.33)
		r.queries(0, 50, 0, overlap.Failed, overlap.ReasonWorkerLost)
		r.queries(0, 50, 0, overlap.Cancelled, overlap.ReasonCancelled)
	})
	o := r.loads()
	if !near(o.DevicesDemanded, 2*(1-0.625)) || !near(o.Idle, 0.625) || o.BadRate != 0 || o.Stalled {
		t.Errorf("%+v", o)
	}
	if w := o.WindowSeconds; w < loadWindow.Seconds() || w > (loadWindow+historyStep).Seconds() {
		t.Errorf("it looks back for %v s", w)
	}
	left, right := o.Devices[0], o.Devices[1]
	if len(o.Devices) != 2 || left.Name != "left" || !near(left.Idle, 0.5) || !near(left.IdleBeforeRoundMS, 250) ||
		right.Name != "right" || !near(right.Idle, 0.75) || !near(right.IdleBeforeRoundMS, 750) {
		t.Errorf("%+v", o.Devices)
	}
	a, b := o.Services["a"], o.Services["b"]
	if !near(a.DeviceSeconds/o.WindowSeconds, 0.7) || !near(b.DeviceSeconds/o.WindowSeconds, 0.05) || !near(a.DeviceSeconds+b.DeviceSeconds, left.BusySeconds+right.BusySeconds) {
		t.Errorf("%+v; %+v", a, b)
	}
	if !near(a.SavedSeconds/o.WindowSeconds, 0.2) || !near(b.SavedSeconds/o.WindowSeconds, 0.05) {
		t.Errorf("%v s are saved, and %v", a.SavedSeconds, b.SavedSeconds)
	}
	if a.Headroom != 0.3 || b.Headroom != 1 || len(o.Services) != 2 {
		t.Errorf("headroom %v and %v", a.Headroom, b.Headroom)
	}
	if total := a.DeviceTotal; total != 3*60*700*time.Millisecond {
		t.Errorf("%v since the start", total)
	}
}

// It is N/(1-r) where the bad rate r is above 1 %. Bad queries are late, dropped, or
// rejected for lack of memory, queue places or time. Best-effort services do not count.
func TestDemandOfALoadThatIsTooMuch(t *testing.T) {
	turned := turnedAway(map[string]uint64{query.ReasonNoMemory: 2, query.ReasonQueueFull: 1, query.ReasonLoading: 100, query.ReasonDraining: 100})
	for _, c := range []struct {
		name                    string
		good, late              int
		each                    func(*loadRig)
		demanded, bad, headroom float64
	}{
		{"below the limit", 1000, 9, nil, 2, 0.009, 0.5},
		{"above it", 950, 50, nil, 2 / 0.95, 0.05, 0},
		{"every reason", 84, 6, func(r *loadRig) {
			r.queries(0, 4, 0, overlap.Dropped, overlap.ReasonDeadlinePassed)
			r.queries(0, 2, 0, overlap.Dropped, overlap.ReasonCannotFinish)
			call := &query.Call{Service: query.NewService(0, "a")}
			r.Observe(&observe.Event{Kind: observe.Refused, At: r.now, Call: call, Err: overlap.ErrQueueFull})
			r.Observe(&observe.Event{Kind: observe.Refused, At: r.now, Call: call, Err: overlap.ErrDraining})
			r.Observe(&observe.Event{Kind: observe.TurnedAway, At: r.now, Service: &models.Service{}, Turned: turned})
		}, 2 / 0.84, 0.16, 0},
		{"of who promises nothing", 1000, 0, func(r *loadRig) { r.finished(1, 500, -1) }, 2, 0, 0.5},
		{"nothing but bad ones", 0, 100, nil, 20, 1, 0},
	} {
		r := newLoadRig(t)
		r.until(2*loadWindow, func() {
			r.round(0, time.Second)
			r.round(1, time.Second)
			r.finished(0, c.good, 0.54)
			r.finished(0, c.late, -0.1)
			if c.each != nil {
				c.each(r)
			}
		})
		if o := r.loads(); !near(o.DevicesDemanded, c.demanded) || !near(o.BadRate, c.bad) || o.Services["a"].Headroom != c.headroom || o.Services["a"].BadRate != o.BadRate {
			t.Errorf("%s: %+v", c.name, o)
		}
	}
}

// What is older than the window is forgotten. Before there was a whole one, and while the
// scheduler shows no sign of life, no device is given back.
func TestDemandInTime(t *testing.T) {
	r := newLoadRig(t)
	if o := r.Load(true); o.DevicesDemanded != 2 || len(o.Devices) != 2 || len(o.Services) != 2 {
		t.Errorf("before anything has happened: %+v", o)
	}
	bad := func() { r.finished(0, 1, 0.9); r.finished(0, 1, -1) }
	r.until(loadWindow/2, bad)
	if o := r.loads(); !near(o.DevicesDemanded, 4) {
		t.Errorf("half of a window, half of all late: %+v", o)
	}
	r.now = loadWindow - time.Second
	r.until(loadWindow-time.Millisecond, func() {})
	r.now = 2*loadWindow + 5*time.Second
	if o := r.loads(); o.DevicesDemanded != 0 || o.BadRate != 0 || o.Idle != 1 || o.Services["a"].Headroom != 1 {
		t.Errorf("a window in which nothing happened: %+v", o)
	}
	if o := r.Load(false); !o.Stalled || o.DevicesDemanded != 2 {
		t.Errorf("of a scheduler that hangs: %+v", o)
	}
	fresh := newLoadRig(t)
	fresh.now = loadWindow / 2
	if o := fresh.loads(); o.DevicesDemanded != 2 || o.Idle != 1 {
		t.Errorf("half a window in which nothing happened: %+v", o)
	}
}

// A service that takes over a name goes on with its demand, and one that is gone has none.
func TestDemandOfServicesThatChange(t *testing.T) {
	r := newLoadRig(t)
	r.finished(0, 1, 0.5)
	r.setService(models.Service{ID: 2, Name: "a"}, false)
	r.dropService(0)
	r.dropService(1)
	r.finished(2, 1, -1)
	r.now = time.Second
	if o := r.loads(); len(o.Services) != 1 || o.Services["a"].BadRate != 0.5 {
		t.Errorf("%+v", o)
	}
}

// The names of the JSON are what other tools rely on.
func TestLoadAsJSON(t *testing.T) {
	text, err := json.Marshal(newLoadRig(t).Load(true))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"devices_demanded", "bad_rate", "idle", "devices", "services", "window_seconds", "age_seconds", "stalled", "headroom", "device_seconds"} {
		if !strings.Contains(string(text), `"`+name+`":`) {
			t.Errorf("there is no %s in %s", name, text)
		}
	}
}

// Publishing is the only thing that takes memory, once a second.
func TestLoadIsCheap(t *testing.T) {
	r := newLoadRig(t)
	r.now = time.Minute
	r.loads()
	rested := &observe.Event{Kind: observe.Rested, At: r.now + loadEvery/2}
	o := &observe.Event{Kind: observe.Ended, At: r.now, Outcome: &models.Outcome{Took: 1, Spans: slices.Repeat([]models.SpanOutcome{{Took: 1}}, 2)}}
	if n := testing.AllocsPerRun(100, func() { r.Observe(rested); r.Observe(o) }); n > 0 {
		t.Errorf("a turn takes memory %v times", n)
	}
	before := r.Load(true).At
	if r.Observe(rested); r.Load(true).At != before {
		t.Error("it is published more than once a second")
	}
}

// BenchmarkLoad measures what publishing costs the scheduler once a second, and what
// reading costs, with the maximum number of services.
func BenchmarkLoad(b *testing.B) {
	list := make([]models.Service, 64)
	for i := range list {
		list[i] = models.Service{ID: models.ServiceID(i), Name: string(rune('a' + i))}
	}
	r := New(time.Now(), list, "left", "right")
	b.Run("publish", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Observe(&observe.Event{Kind: observe.Rested, At: r.due})
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.Load(true)
		}
	})
}

package overlap

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/overlapd/overlapd/models"
)

// ahead drives a scheduler that plans and one that never does with the same
// events. Every round ends when it was predicted to, and the next one starts
// at once.
type ahead struct {
	*rapid.T
	plans, plain *Scheduler
	now          time.Duration
	round        *Round
	lastID       models.QueryID
}

// Where rounds end as predicted, plans change no decision.
func TestPlansChangeNothing(t *testing.T) {
	kept := false
	rapid.Check(t, func(t *rapid.T) {
		c := &costs{}
		config := Config{Devices: []Predictor{c}, Services: anyServices(t, c), MaxRetries: 1, Selector: whichever{}}
		p := anyPolicy(t)
		if (p == sjf{}) { // which of a service's queries is the most urgent depends on the variant that they wait for
			config.Selector = nil
			for i := range config.Services {
				config.Services[i].Of = ""
			}
		}
		w := &ahead{T: t, plans: newScheduler(config, p), plain: newScheduler(config, p)}
		plan := func(*rapid.T) { w.plans.Advance(w.now) }
		t.Repeat(map[string]func(*rapid.T){
			"":       func(*rapid.T) { w.compare() },
			"arrive": w.arrive, "arrive ": w.arrive, "arrive  ": w.arrive,
			"next": w.next, "next ": w.next, "next  ": w.next,
			"finish": w.finish, "finish ": w.finish,
			"cancel": w.cancel,
			"worker": w.worker,
			"wait":   w.wait,
			"plan":   plan, "plan ": plan, "plan  ": plan, "plan   ": plan,
		})
		kept = kept || w.plans.Metrics().Plans.Kept > 0
	})
	if !kept && !testing.Short() { // with a fifth of the checks there may be none
		t.Error("no plan was ever kept")
	}
}

func (w *ahead) each(f func(s *Scheduler)) {
	f(w.plans)
	f(w.plain)
}

func (w *ahead) arrive(t *rapid.T) {
	w.lastID++
	q := models.Query{
		ID: w.lastID, Service: models.ServiceID(rapid.IntRange(0, len(w.plain.backlog.services)-1).Draw(t, "service")),
		Size: rapid.IntRange(1, 3).Draw(t, "size"), Priority: rapid.IntRange(0, 1).Draw(t, "priority"),
		Arrival: w.now, Deadline: w.now + time.Duration(rapid.IntRange(0, 120).Draw(t, "deadline")),
	}
	w.each(func(s *Scheduler) { _ = s.arrive(w.now, q) })
}

func (w *ahead) next(t *rapid.T) {
	r, ok := w.plain.next(w.now)
	planned, same := w.plans.next(w.now)
	if planned.Planned = false; ok != same || cmp.Diff(r, planned, exported) != "" {
		t.Fatalf("at %v: %+v, with plans %+v", w.now, r, planned)
	}
	if ok {
		w.round = &r
	}
}

func (w *ahead) finish(t *rapid.T) {
	if w.round == nil {
		return
	}
	w.now = max(w.now, w.end())
	o := models.Outcome{Round: w.round.Number}
	for _, s := range w.round.Group.Spans {
		so := models.SpanOutcome{Span: s, Reached: s.End, Took: rapid.SampledFrom([]time.Duration{1, 20}).Draw(t, "took")}
		if rapid.IntRange(0, 9).Draw(t, "status") == 0 {
			so.Status, so.Reached = models.SpanStopped, s.Start
		}
		o.Spans = append(o.Spans, so)
	}
	w.round = nil
	w.each(func(s *Scheduler) {
		if err := s.finish(w.now, o); err != nil {
			t.Fatal(err)
		}
	})
	w.next(t)
}

func (w *ahead) end() time.Duration { return w.round.Start + w.round.Predicted.Latency }

// wait lets time pass, but not past the end of the round that runs.
func (w *ahead) wait(t *rapid.T) {
	w.now += time.Duration(rapid.IntRange(1, 30).Draw(t, "wait"))
	if w.round != nil {
		w.now = min(w.now, w.end())
	}
}

func (w *ahead) cancel(t *rapid.T) {
	if w.lastID > 0 {
		id := models.QueryID(rapid.Uint64Range(1, uint64(w.lastID)).Draw(t, "query"))
		w.each(func(s *Scheduler) { s.cancel(w.now, id) })
	}
}

func (w *ahead) worker(t *rapid.T) {
	id := models.ServiceID(rapid.IntRange(0, len(w.plain.backlog.services)-1).Draw(t, "service"))
	down := rapid.IntRange(0, 3).Draw(t, "down") == 0
	w.each(func(s *Scheduler) {
		if down {
			s.down(w.now, id, 0)
		} else {
			s.up(w.now, id, 0)
		}
	})
}

func (w *ahead) compare() {
	varied := len(w.plain.backlog.families) > 0 // then a plan may change where queries wait, but not how they are answered
	answers := func(s *Scheduler) []Answer {
		list := slices.Clone(s.backlog.answers.take())
		for i := range list {
			if varied && list[i].Batch == 0 {
				list[i].Service = 0
			}
		}
		return list
	}
	if diff := cmp.Diff(answers(w.plain), answers(w.plans)); diff != "" {
		w.Fatalf("answers:\n%s", diff)
	}
	if diff := cmp.Diff(w.plain.backlog.released.take(), w.plans.backlog.released.take()); diff != "" {
		w.Fatalf("released:\n%s", diff)
	}
	m := w.plans.Metrics()
	if p := m.Plans; p.Made-p.Kept-p.Overturned > 1 {
		w.Fatalf("plans do not add up: %+v", p)
	}
	m.Plans = planMetrics{}
	if diff := cmp.Diff(w.plain.Metrics(), m); diff != "" && !varied {
		w.Fatalf("metrics:\n%s", diff)
	}
	if err := errors.Join(w.plain.Check(), w.plans.Check()); err != nil {
		w.Fatal(err)
	}
}

// Planning again without news costs nothing, and a plan for an empty queue is
// none.
func TestPlanIsMadeOnce(t *testing.T) {
	config := goodConfig(2)
	config.Policy = "overlap"
	s, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	arrive := func(id models.QueryID) {
		if err := s.arrive(0, models.Query{ID: id, Size: 1, Deadline: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	arrive(1)
	s.next(0)
	s.Advance(1)
	arrive(2)
	s.Advance(2)
	asked := config.Devices[0].(*costs)
	calls := asked.calls
	s.Advance(3)
	if asked.calls != calls {
		t.Errorf("the predictor was asked about %d groups", asked.calls-calls)
	}
	if p := s.Metrics().Plans; p != (planMetrics{Made: 1}) {
		t.Errorf("%+v", p)
	}
}

// A plan drops no more than its limit; Next drops all.
func TestPlanDropsAreBounded(t *testing.T) {
	const hopeless = 3 * maxPlannedDrops
	config := goodConfig(2)
	config.Services[1].QueueLimit = hopeless
	s := newScheduler(config, overlap{})
	arrive := func(id models.QueryID, service models.ServiceID, deadline time.Duration) {
		q := models.Query{ID: id, Service: service, Size: 1, Deadline: deadline}
		if err := s.arrive(0, q); err != nil {
			t.Fatal(err)
		}
	}
	arrive(1, 0, time.Hour)
	r, _ := s.next(0)
	for i := range models.QueryID(hopeless) {
		arrive(i+2, 1, r.Predicted.Latency+time.Millisecond)
	}
	asked := config.Devices[0].(*costs)
	calls := asked.calls
	s.Advance(0)
	if n := asked.calls - calls; n > maxPlannedDrops+2 {
		t.Errorf("a plan asked about %d groups", n)
	}
	end := r.Predicted.Latency
	if err := s.finish(end, models.Outcome{Round: 1, Spans: []models.SpanOutcome{{Span: models.Span{Batch: 1}, Reached: 10}}}); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.next(end); ok || len(s.backlog.answers.take()) != 1+hopeless {
		t.Error("not all that was hopeless is dropped")
	}
	if p := s.Metrics().Plans; p != (planMetrics{Made: 1, Overturned: 1}) {
		t.Errorf("%+v", p)
	}
}

// What the predictor has learned since the plan was made counts.
func TestPlanAsksAgain(t *testing.T) {
	for name, change := range map[string]func(*costs){
		"as before": func(*costs) {},
		"unknown":   func(c *costs) { c.op[1] = 0 },
		"slower":    func(c *costs) { c.op[1] *= 2 },
	} {
		config := goodConfig(2)
		asked := config.Devices[0].(*costs)
		asked.pair(0, 1, 0.8)
		s := newScheduler(config, overlap{})
		arrive := func(id models.QueryID, service models.ServiceID) {
			if err := s.arrive(0, models.Query{ID: id, Service: service, Size: 1, Deadline: 27 * time.Millisecond}); err != nil {
				t.Fatal(err)
			}
		}
		arrive(1, 0)
		if _, ok := s.next(0); !ok {
			t.Fatal("no round")
		}
		arrive(2, 0)
		arrive(3, 1)
		s.Advance(0)
		change(asked)
		if err := s.finish(10*time.Millisecond, models.Outcome{Round: 1, Spans: []models.SpanOutcome{{Span: models.Span{Batch: 1}, Reached: 10}}}); err != nil {
			t.Fatal(err)
		}
		r, ok := s.next(10 * time.Millisecond)
		if kept := ok && r.Planned && len(r.Group.Spans) == 2; kept != (name == "as before") {
			t.Errorf("%s: round %+v", name, r)
		}
	}
}

// A plan does not look through a queue whose queries will mostly be past their
// deadlines when the round ends: it is not made, after however many events.
func TestPlanPassesFewThatExpire(t *testing.T) {
	config := goodConfig(2)
	config.Services[1].QueueLimit = maxQueueLimit
	for _, p := range []policy{edf{}, overlap{}} {
		s := newScheduler(config, p)
		if err := s.arrive(0, models.Query{ID: 1, Size: 1, Deadline: time.Hour}); err != nil {
			t.Fatal(err)
		}
		r, _ := s.next(0)
		for id := range models.QueryID(10 * walkMost) {
			if err := s.arrive(0, models.Query{ID: id + 2, Service: 1, Size: 1, Deadline: r.Predicted.Latency - 1}); err != nil {
				t.Fatal(err)
			}
		}
		s.Advance(0)
		if n := len(s.backlog.services[1].view.queue.order); s.planned || n > walkMost {
			t.Errorf("%T: a plan is made %t after %d queries were put in order", p, s.planned, n)
		}
		if _, ok := s.next(r.Predicted.Latency); ok || len(s.backlog.answers.take()) != 10*walkMost {
			t.Errorf("%T: not all that expired is answered", p)
		}
	}
}

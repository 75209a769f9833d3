package overlap

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/overlapd/overlapd/models"
)

// deployed returns a scheduler with two services and what their definitions
// are.
func deployed(t *testing.T, policy string) (*Scheduler, []models.Service) {
	t.Helper()
	c := goodConfig(2)
	c.Policy = policy
	c.Devices[0].(*costs).add(time.Millisecond, 10) // of a third
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, c.Services
}

// third is a service that deployed does not have.
func third() models.Service {
	return models.Service{ID: 2, Name: "c", Operators: 4, QoSTarget: time.Second, QueueLimit: 2, MaxBatch: 2}
}

func ask(t *testing.T, s *Scheduler, id models.QueryID, service models.ServiceID) {
	t.Helper()
	s.backlog.clock(0)
	if err := s.arrive(s.backlog.now, models.Query{ID: id, Service: service, Size: 1, Arrival: s.backlog.now, Deadline: s.backlog.now + time.Second}); err != nil {
		t.Fatal(err)
	}
}

// runAll runs rounds until nothing waits that can run.
func runAll(t *testing.T, s *Scheduler) (answers []Answer) {
	t.Helper()
	for {
		r, ok := s.next(s.backlog.now)
		if !ok {
			return append(answers, s.backlog.answers.take()...)
		}
		o := models.Outcome{Round: r.Number}
		for _, span := range r.Group.Spans {
			o.Spans = append(o.Spans, models.SpanOutcome{Span: span, Reached: span.End})
		}
		if err := s.finish(s.backlog.now+r.Predicted.Latency, o); err != nil {
			t.Fatal(err)
		}
		if err := s.Check(); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, s.backlog.answers.take()...)
	}
}

// A replacement, as a daemon does it, loses no query: the successor takes new
// ones while the predecessor finishes what it has.
func TestReplaceAService(t *testing.T) {
	for _, p := range Policies() {
		s, services := deployed(t, p.Name)
		ask(t, s, 1, 0)
		_, ok := s.next(s.backlog.now)
		if at, later := s.backlog.wake(); !ok && later {
			_, ok = s.next(at)
		}
		if !ok {
			t.Fatal("no round")
		}
		successor := third()
		successor.Name = services[0].Name
		if err := s.add(s.backlog.now, successor); err != nil {
			t.Fatal(err)
		}
		ask(t, s, 2, 2) // which waits
		s.up(s.backlog.now, 2, 0)
		if err := s.remove(s.backlog.now, 0); !errors.Is(err, ErrServiceBusy) {
			t.Fatalf("Remove while a query runs: %v", err)
		}
		if err := s.finish(s.backlog.now+10*time.Millisecond, models.Outcome{Round: 1, Spans: []models.SpanOutcome{{Span: models.Span{Batch: 1}, Reached: 10}}}); err != nil {
			t.Fatal(err)
		}
		answers := runAll(t, s)
		if len(answers) != 2 || answers[0].Result != Finished || answers[1].Result != Finished || answers[1].Service != 2 {
			t.Fatalf("%s: %+v", p.Name, answers)
		}
		if err := s.remove(s.backlog.now, 0); err != nil {
			t.Fatal(err)
		}
		if m := s.Metrics().Services; len(m) != 3 || m[0] != (ServiceMetrics{}) || m[2].Finished != 1 {
			t.Errorf("metrics %+v", m)
		}
	}
}

func TestRemovedServiceIsGone(t *testing.T) {
	s, services := deployed(t, "overlap")
	if err := s.remove(0, 1); err != nil {
		t.Fatal(err)
	}
	s.up(0, 1, 0)
	s.down(0, 1, 0)
	s.up(0, 1, 0)
	if !s.backlog.services[1].down() {
		t.Error("it came up")
	}
	for what, err := range map[string]error{
		"Arrive": s.arrive(0, models.Query{ID: 1, Service: 1, Size: 1, Deadline: time.Hour}),
		"Load":   s.load(0, services[1]),
		"Change": s.change(0, services[1]),
		"Remove": s.remove(0, 1),
	} {
		if !errors.Is(err, ErrUnknownService) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if waiting := s.Waiting(nil); len(waiting) != 2 {
		t.Errorf("%d positions", len(waiting))
	}
	if err := s.add(0, services[1]); err != nil {
		t.Fatal(err)
	}
	if m := s.Metrics().Services[1]; m.Name != "b" || !m.Down || m.Refused[ReasonNone] != 0 {
		t.Errorf("metrics of its successor: %+v", m)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

func TestAddRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(m *models.Service)
		want  error
		says  string
	}{
		"in use":       {func(m *models.Service) { m.ID = 1 }, ErrServiceID, "want 2"},
		"a gap":        {func(m *models.Service) { m.ID = 3 }, ErrServiceID, "want 2"},
		"negative":     {func(m *models.Service) { m.ID = -1 }, ErrServiceID, "want 2"},
		"no operators": {func(m *models.Service) { m.Operators = 0 }, ErrBadService, "0 operators"},
		"no target":    {func(m *models.Service) { m.QoSTarget = 0 }, ErrBadService, "QoS target"},
	} {
		s, _ := deployed(t, "edf")
		m := third()
		c.spoil(&m)
		if err := s.add(0, m); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if len(s.backlog.services) != 2 {
			t.Errorf("%s: there are %d services", name, len(s.backlog.services))
		}
	}
}

func TestServicesAreBounded(t *testing.T) {
	c, m := goodConfig(1), third()
	for m.ID = 1; m.ID < MaxServices-1; m.ID++ {
		c.Services = append(c.Services, m)
	}
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.add(0, m); err != nil {
		t.Fatalf("the last one: %v", err)
	}
	m.ID++
	if err := s.add(0, m); !errors.Is(err, ErrTooManyServices) {
		t.Errorf("one more: %v", err)
	}
	if err := s.remove(0, 5); err != nil {
		t.Fatal(err)
	}
	if err := s.add(0, m); !errors.Is(err, ErrServiceID) {
		t.Errorf("beyond the last while 5 is free: %v", err)
	}
	if m.ID = 5; s.add(0, m) != nil {
		t.Error("5 is not free")
	}
}

func TestChangeRefuses(t *testing.T) {
	s, services := deployed(t, "edf")
	before := s.Snapshot()
	for name, c := range map[string]struct {
		spoil func(m *models.Service)
		want  error
	}{
		"name":      {func(m *models.Service) { m.Name = "z" }, ErrOtherModel},
		"operators": {func(m *models.Service) { m.Operators++ }, ErrOtherModel},
		"queue":     {func(m *models.Service) { m.QueueLimit = 0 }, ErrBadService},
		"unknown":   {func(m *models.Service) { m.ID = 2 }, ErrUnknownService},
	} {
		m := services[1]
		c.spoil(&m)
		if err := s.change(0, m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	after := s.Snapshot()
	after.Now = before.Now
	if diff := cmp.Diff(before, after, exported); diff != "" {
		t.Error(diff)
	}
}

// What was accepted keeps its place: best effort that became a promise still
// comes last, and a promise that became best effort is still kept.
func TestChangeKeepsRanks(t *testing.T) {
	c := goodConfig(2)
	c.Policy = "overlap"
	c.Services[0].BestEffort = true
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ask(t, s, 1, 0)
	ask(t, s, 2, 1)
	for i := range c.Services {
		c.Services[i].BestEffort = !c.Services[i].BestEffort
		if err := s.change(0, c.Services[i]); err != nil {
			t.Fatal(err)
		}
	}
	ask(t, s, 3, 0)
	ask(t, s, 4, 1)
	var order []models.QueryID
	for _, a := range runAll(t, s) {
		order = append(order, a.Query)
	}
	if want := []models.QueryID{2, 3, 1, 4}; !reflect.DeepEqual(order, want) {
		t.Errorf("answered in order %v, want %v", order, want)
	}
}

// The queue limit and the largest batch are those of the last change.
func TestChangeHolds(t *testing.T) {
	s, services := deployed(t, "fcfs")
	m := services[0]
	m.QueueLimit, m.MaxBatch, m.QoSTarget = 3, 1, time.Minute
	for id := models.QueryID(1); id <= 3; id++ {
		ask(t, s, id, 0)
	}
	if err := s.change(0, m); err != nil {
		t.Fatal(err)
	}
	err := s.arrive(0, models.Query{ID: 4, Size: 1, Deadline: time.Hour})
	if !errors.Is(err, ErrQueueFull) || !strings.Contains(err.Error(), "3 queries wait") {
		t.Errorf("a fourth query: %v", err)
	}
	if r, ok := s.next(0); !ok || len(r.Queries[0]) != 1 {
		t.Errorf("a round of %+v", r)
	}
	if got := s.backlog.services[0].QoSTarget; got != time.Minute {
		t.Errorf("target %v", got)
	}
}

// Each of the three gives up a plan.
func TestChangesOverturnPlans(t *testing.T) {
	for name, change := range map[string]func(s *Scheduler, m models.Service) error{
		"add":    func(s *Scheduler, _ models.Service) error { return s.add(0, third()) },
		"change": func(s *Scheduler, m models.Service) error { return s.change(0, m) },
		"remove": func(s *Scheduler, _ models.Service) error { return s.remove(0, 1) },
	} {
		s, services := deployed(t, "fcfs")
		services[0].MaxBatch = 1
		if err := s.change(0, services[0]); err != nil {
			t.Fatal(err)
		}
		ask(t, s, 1, 0)
		ask(t, s, 2, 0)
		s.next(0)
		if s.Advance(0); !s.planned {
			t.Fatal("no plan")
		}
		if err := change(s, services[0]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if s.planned || s.Metrics().Plans.Overturned != 1 {
			t.Errorf("%s: the plan stands", name)
		}
	}
}

// A snapshot holds what the configuration does not know.
func TestRestoreKnowsChanges(t *testing.T) {
	s, services := deployed(t, "edf")
	services[0].QoSTarget, services[0].BestEffort = time.Minute, true
	added := third()
	if err := errors.Join(s.change(0, services[0]), s.remove(0, 1), s.add(0, added)); err != nil {
		t.Fatal(err)
	}
	c := goodConfig(2)
	c.Policy = "edf"
	k := s.Snapshot()
	r, err := Restore(c, k)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(k, r.Snapshot(), exported); diff != "" {
		t.Error(diff)
	}
	want := []models.Service{services[0], {ID: 1}, added}
	again := r.Snapshot()
	if diff := cmp.Diff(want, again.Definitions()); diff != "" {
		t.Error(diff)
	}
	// The configuration need not hold what the snapshot does.
	c.Services = nil
	if _, err := Restore(c, k); err != nil {
		t.Error(err)
	}
}

// strict is a predictor that must not be asked about a service.
type strict struct {
	*costs
	t    *testing.T
	gone models.ServiceID
}

func (p strict) Predict(groups []models.Group, estimates []models.Estimate) {
	for _, g := range groups {
		for _, s := range g.Spans {
			if s.Service == p.gone {
				p.t.Errorf("asked about a service that was removed: %+v", s)
			}
		}
	}
	p.costs.Predict(groups, estimates)
}

// Best effort leaves no room for queries of a service that is gone.
func TestRemovedServiceIsNotAskedAbout(t *testing.T) {
	for _, p := range Policies() {
		c := goodConfig(2)
		c.Policy = p.Name
		c.Services[0].BestEffort = true
		c.Devices[0] = strict{c.Devices[0].(*costs), t, 1}
		s, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.remove(0, 1); err != nil {
			t.Fatal(err)
		}
		ask(t, s, 1, 0)
		ask(t, s, 2, 0)
		if answers := runAll(t, s); len(answers) != 2 {
			t.Errorf("%s: %+v", p.Name, answers)
		}
	}
}

package timeline

import (
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// linear is a predictor: an operator takes a millisecond for each query, and
// groups half of the sum of their spans.
type linear struct{}

func (linear) Predict(groups []models.Group, to []models.Estimate) {
	for i, g := range groups {
		var sum time.Duration
		for _, s := range g.Spans {
			sum += time.Duration(s.Len()*s.Size) * time.Millisecond
		}
		if len(g.Spans) > 1 {
			sum /= 2
		}
		to[i] = models.Estimate{Latency: sum, Bound: sum * 11 / 10}
	}
}

const operators = 10

func services(n int) []models.Service {
	list := make([]models.Service, n)
	for i := range list {
		list[i] = models.Service{
			ID: models.ServiceID(i), Name: string(rune('a' + i)), Operators: operators,
			QoSTarget: 10 * time.Second, QueueLimit: 100, MaxBatch: 4, // so late that no round of one batch ends early
		}
	}
	return list
}

func (r *Ring) begin(round *overlap.Round, why *overlap.Explanation, services []models.Service) {
	r.Observe(&observe.Event{Kind: observe.Dispatched, Round: round, Why: why, Services: services})
}

func (r *Ring) finish(now time.Duration, o *models.Outcome) {
	r.Observe(&observe.Event{Kind: observe.Ended, At: now, Outcome: o})
}

// finishOnDevice ends a round one span of which took so long by the device's clock.
func (r *Ring) finishOnDevice(now time.Duration, o *models.Outcome, span models.Span, took time.Duration) {
	e := observe.Event{Kind: observe.Ended, At: now, Outcome: o}
	e.Measured = another(e.Measured)
	e.Measured.Round, e.Measured.Spans = o.Round, slices.Grow(e.Measured.Spans, 1)[:1]
	e.Measured.Spans[0].Span, e.Measured.Spans[0].DeviceTook = span, took
	r.Observe(&e)
}

// another returns a new value of a type that this package does not name.
func another[T any](*T) *T { return new(T) }

func (r *Ring) setService(m models.Service, fresh bool) {
	r.Observe(&observe.Event{Kind: observe.Set, Service: &m, Fresh: fresh})
}

func (r *Ring) dropService(id models.ServiceID) {
	r.Observe(&observe.Event{Kind: observe.Dropped, Service: &models.Service{ID: id}})
}

// answered has a query of a service answered so long after it came.
func (r *Ring) answered(service models.ServiceID, took time.Duration, inTime bool) {
	r.Observe(r.answer(service, took, inTime))
}

func (r *Ring) answer(service models.ServiceID, took time.Duration, inTime bool) *observe.Event {
	a := overlap.Answer{Service: service, At: took, Result: overlap.Finished}
	if !inTime {
		a.Result = overlap.Failed
	}
	call := &query.Call{Service: &query.Service{ID: service, QoSTarget: time.Hour}, Arrival: r.epoch}
	return &observe.Event{Kind: observe.Answered, Answer: &a, Call: call}
}

// ended has a query of a service be over.
func (r *Ring) ended(service models.ServiceID, q Query) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.addLocked(service, q)
}

// scheduled is a real scheduler whose rounds go into a ring.
type scheduled struct {
	t         *testing.T
	scheduler *overlap.Scheduler
	ring      *Ring
	services  []models.Service
	now       time.Duration
	lastID    models.QueryID
	onDevice  time.Duration // of the first span of a round, 0 if the device has no clock
}

func newScheduled(t *testing.T, n int) *scheduled {
	t.Helper()
	list := services(n)
	s, err := overlap.New(overlap.Config{Services: list, Policy: "overlap", Devices: []overlap.Predictor{linear{}}})
	if err != nil {
		t.Fatal(err)
	}
	return &scheduled{t: t, scheduler: s, ring: New(time.Now(), list), services: list}
}

func (s *scheduled) step(e overlap.Event) {
	s.t.Helper()
	if err := s.scheduler.Step(s.now, &e); err != nil {
		s.t.Fatal(err)
	}
}

// arrive queues a query.
func (s *scheduled) arrive(service int, target time.Duration) {
	s.t.Helper()
	s.lastID++
	q := models.Query{ID: s.lastID, Service: models.ServiceID(service), Size: 1, Arrival: s.now, Deadline: s.now + target}
	s.step(overlap.Event{Kind: overlap.Arrive, Query: q})
}

// begin starts a round.
func (s *scheduled) begin() overlap.Round {
	s.t.Helper()
	r := s.scheduler.Ready(s.now)
	if r.Round == nil {
		s.t.Fatal("no round")
	}
	why := s.scheduler.Explain()
	s.ring.begin(r.Round, &why, s.services)
	return *r.Round
}

// end ends it as predicted and a tenth more.
func (s *scheduled) end(r overlap.Round) {
	s.t.Helper()
	o := models.Outcome{Round: r.Number, Took: r.Predicted.Latency * 11 / 10}
	for _, span := range r.Group.Spans {
		o.Spans = append(o.Spans, models.SpanOutcome{Span: span, Reached: span.End, Took: o.Took})
	}
	s.now += o.Took
	if s.onDevice > 0 {
		s.ring.finishOnDevice(s.now, &o, r.Group.Spans[0], s.onDevice)
	} else {
		s.ring.finish(s.now, &o)
	}
	s.step(overlap.Event{Kind: overlap.Finish, Outcome: o})
	if s.scheduler.Ended() {
		s.scheduler.Ready(s.now)
	}
}

// rounds runs so many, of a query each.
func (s *scheduled) rounds(n int) {
	s.t.Helper()
	for range n {
		s.arrive(0, time.Second)
		s.end(s.begin())
	}
}

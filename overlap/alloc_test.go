package overlap

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// load keeps a scheduler at a constant number of waiting queries.
type load struct {
	s     *Scheduler
	now   time.Duration
	id    models.QueryID
	spans []models.SpanOutcome

	services int // that queries come for, the first ones
}

const loadDepth = 16 // queries that wait, of each service

func newLoad(t testing.TB, p policy, services int) *load {
	config := goodConfig(services)
	for a := range models.ServiceID(services) {
		for b := range a {
			config.Devices[0].(*costs).pair(a, b, 0.95)
		}
	}
	l := &load{s: newScheduler(config, p), services: services}
	for range loadDepth * services {
		l.arrive(t)
	}
	return l
}

func (l *load) arrive(t testing.TB) {
	l.id++
	q := models.Query{
		ID: l.id, Service: models.ServiceID(int(l.id) % l.services), Size: 1 + int(l.id)%2,
		Shape: uint64(l.id / 7 % 2), Arrival: l.now, Deadline: l.now + time.Hour - time.Duration(l.id*7919%1000),
	}
	if err := l.s.arrive(l.now, q); err != nil {
		t.Fatal(err)
	}
}

// round runs one group, and lets as many queries arrive as it has answered.
func (l *load) round(t testing.TB) int {
	r, ok := l.s.next(l.now)
	if !ok {
		t.Fatal("nothing to run")
	}
	l.s.Advance(l.now)
	l.now += r.Predicted.Latency
	l.spans = l.spans[:0]
	for _, s := range r.Group.Spans {
		l.spans = append(l.spans, models.SpanOutcome{Span: s, Reached: s.End, Took: r.Predicted.Latency})
	}
	if err := l.s.finish(l.now, models.Outcome{Round: r.Number, Took: r.Predicted.Latency, Spans: l.spans}); err != nil {
		t.Fatal(err)
	}
	l.s.backlog.released.take()
	answers := len(l.s.backlog.answers.take())
	for range answers {
		l.arrive(t)
	}
	return answers
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	for _, p := range []policy{fcfs{}, sjf{}, edf{}, abacus{}, overlap{}, together{operators: 3}} {
		l := newLoad(t, p, 4)
		for range 1000 {
			l.round(t)
		}
		if n := testing.AllocsPerRun(1000, func() { l.round(t) }); n != 0 {
			t.Errorf("%T: a round allocates %v times", p, n)
		}
		if err := l.s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// A drop asks the predictor about the query that is about to run, and not
// about all that wait.
func TestNextAsksAboutHeadsOnly(t *testing.T) {
	config := goodConfig(1)
	config.Services[0].MaxBatch = 1
	l := &load{s: newScheduler(config, fcfs{}), services: 1}
	for range 90 {
		l.arrive(t)
	}
	asked := config.Devices[0].(*costs)
	asked.calls = 0
	l.s.next(0)
	if asked.calls > 2 {
		t.Errorf("the predictor was asked %d times", asked.calls)
	}
}

package overlap

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// always selects one variant.
type always string

func (a always) Select(string, int, time.Duration) string { return string(a) }

// hanging is a service with two variants, of which one hangs with each batch. Its queries are
// answered at their deadlines, its worker is killed after that, and the next one is soon ready.
type hanging struct {
	s       *Scheduler
	now     time.Duration
	slow    models.ServiceID
	until   time.Duration // it hangs
	batch   models.BatchID
	round   uint64
	die, up time.Duration // when its worker is killed, and the next is ready, 0 for never

	asked, late, tries int
	accurate           int // queries that the variant answered
}

func newHanging(t *testing.T, until time.Duration) *hanging {
	c := new(costs)
	c.add(5*time.Millisecond, 50)
	c.add(10*time.Millisecond, 50)
	list := []models.Service{{Name: "fast", Accuracy: 70}, {ID: 1, Name: "slow", Accuracy: 80}}
	for i := range list {
		v := &list[i]
		v.Of, v.Operators, v.MaxBatch, v.QoSTarget, v.QueueLimit = "f", 4, 4, 500*time.Millisecond, 100
	}
	s, err := New(Config{Policy: "overlap", Devices: []Predictor{c}, Services: list, Selector: always("slow"), MaxRetries: 2})
	if err != nil {
		t.Fatal(err)
	}
	return &hanging{s: s, slow: 1, until: until}
}

// run asks every 50 ms, up to a time.
func (h *hanging) run(t *testing.T, end time.Duration) {
	const tick = 5 * time.Millisecond
	var round Round
	var over time.Duration
	finish := func(number uint64, status models.Status, spans []models.Span) {
		o := models.Outcome{Round: number}
		for _, s := range spans {
			reached := s.End
			if status != models.SpanDone {
				reached = s.Start
			}
			o.Spans = append(o.Spans, models.SpanOutcome{Span: s, Status: status, Reached: reached})
		}
		if err := h.s.finish(h.now, o); err != nil {
			t.Fatal(err)
		}
	}
	for ; h.now < end; h.now += tick {
		if h.now%(50*time.Millisecond) == 0 {
			h.asked++
			q := models.Query{ID: models.QueryID(h.asked), Size: 1, Arrival: h.now, Deadline: h.now + 500*time.Millisecond}
			if err := h.s.arrive(h.now, q); err != nil {
				t.Fatal(err)
			}
		}
		if over > 0 && h.now >= over {
			over = 0
			if s := round.Spans[0]; s.Service == h.slow && h.now < h.until {
				h.batch, h.round = s.Batch, round.Number
				h.tries++
				finish(round.Number, models.SpanOverrun, round.Spans)
			} else {
				finish(round.Number, models.SpanDone, round.Spans)
			}
		}
		if waiting, _ := h.s.Unanswered(h.batch); h.batch > 0 && h.die == 0 && len(waiting) == 0 {
			h.die = h.now + 500*time.Millisecond
		}
		if h.die > 0 && h.now >= h.die {
			h.s.down(h.now, h.slow, 0)
			finish(h.round, models.SpanCrashed, []models.Span{{Service: h.slow, Batch: h.batch, End: 4}})
			h.batch, h.die, h.up = 0, 0, h.now+300*time.Millisecond
		}
		if h.up > 0 && h.now >= h.up {
			h.up = 0
			h.s.up(h.now, h.slow, 0)
		}
		if over == 0 {
			if r, ok := h.s.next(h.now); ok {
				round = r.clone()
				over = h.now + round.Predicted.Latency
				if s := round.Spans[0]; s.Service == h.slow && h.now < h.until {
					over = h.now + h.s.Allowed(0, round.Predicted.Bound, 2)
				}
			}
		}
		for _, a := range h.s.backlog.answers.take() {
			switch {
			case a.Result != Finished:
				h.late++
			case a.Service == h.slow:
				h.accurate++
			}
		}
		h.s.backlog.released.take()
		h.s.backlog.stops.take()
	}
}

// A variant that rests still answers where no other may.
func TestVariantThatRestsIsAsked(t *testing.T) {
	h := newHanging(t, 0)
	h.s.backlog.services[h.slow].Relapse = relapse{2, time.Hour}
	for id, q := range []models.Query{{}, {Service: h.slow, Accuracy: 80}, {Service: h.slow, Fixed: true}} {
		q.ID, q.Size, q.Shape, q.Deadline = models.QueryID(id+1), 1, uint64(id), h.now+500*time.Millisecond
		if err := h.s.arrive(h.now, q); err != nil {
			t.Fatal(err)
		}
		want := h.slow
		if id == 0 {
			want = 0
		}
		r, ok := h.s.next(h.now)
		if !ok || len(r.Spans) != 1 || r.Spans[0].Service != want {
			t.Fatalf("query %d is answered by %v, want %d", q.ID, r.Spans, want)
		}
		s := r.Spans[0]
		h.now += r.Predicted.Latency
		if err := h.s.finish(h.now, models.Outcome{Round: r.Number, Spans: []models.SpanOutcome{{Span: s, Reached: s.End}}}); err != nil {
			t.Fatal(err)
		}
		h.s.backlog.services[h.slow].Relapse = relapse{2, time.Hour}
	}
}

// A variant that hangs each time that it is tried costs its service at most 1/64 of its queries.
// Once it does not hang any more it answers again, within the time that it last rested.
func TestVariantThatHangs(t *testing.T) {
	const hangs = 10 * time.Minute
	h := newHanging(t, hangs)
	h.run(t, hangs)
	if h.tries < 3 || h.accurate > 0 {
		t.Fatalf("the variant was tried %d times and answered %d queries", h.tries, h.accurate)
	}
	if share := float64(h.late) / float64(h.asked); share > 1.0/64 {
		t.Errorf("%d of %d queries were not answered, %.2f %%, in %d tries", h.late, h.asked, 100*share, h.tries)
	}
	t.Logf("%d of %d queries were not answered, in %d tries", h.late, h.asked, h.tries)
	asked, late := h.asked, h.late
	h.run(t, hangs+2*time.Minute)
	if h.run(t, hangs+3*time.Minute); h.late-late > 8 || h.accurate < (h.asked-asked)/4 {
		t.Errorf("well again: of %d queries %d were late, and the variant answered %d", h.asked-asked, h.late-late, h.accurate)
	}
}

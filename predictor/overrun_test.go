package predictor

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// TestOverrunIsALowerBound: a group that ended by itself after its round took at least as
// long as that, and one of which a span was lost shows nothing.
func TestOverrunIsALowerBound(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name   string
		status models.Status
		learns bool
	}{
		{"ends", models.SpanDone, true}, {"is stopped", models.SpanStopped, true},
		{"fails", models.SpanFailed, false}, {"is lost", models.SpanLost, false}, {"crashes", models.SpanCrashed, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			solo, err := NewSolo(2, 2)
			if err != nil {
				t.Fatal(err)
			}
			p := New(solo)
			var spans []models.Span
			for id := range 2 {
				if err := solo.SetOperators(models.ServiceID(id), 1, 0, []int64{int64(5 * ms), int64(5 * ms)}); err != nil {
					t.Fatal(err)
				}
				spans = append(spans, models.Span{Service: models.ServiceID(id), Batch: models.BatchID(id + 1), End: 2, Size: 1})
			}
			estimate := func(spans ...models.Span) time.Duration {
				var e [1]models.Estimate
				p.Predict([]models.Group{{Spans: spans}}, e[:])
				return e[0].Bound
			}
			alone, together := estimate(spans[0]), estimate(spans...)
			for now := time.Second; now < 40*time.Second; now += time.Second {
				o := NewOverrun(models.Group{Spans: spans}, 60*ms, 2)
				if o.Ended(p, now, models.SpanOutcome{Span: spans[0], Status: models.SpanDone, Reached: 2}) {
					t.Fatal("it is over with the first of two spans")
				}
				if !o.Ended(p, now, models.SpanOutcome{Span: spans[1], Status: c.status, Reached: 2}) {
					t.Fatal("it is not over with the last span")
				}
				if !NewOverrun(models.Group{Spans: spans[:1]}, 30*ms, 1).Ended(p, now, models.SpanOutcome{Span: spans[0], Status: c.status, Reached: 2}) {
					t.Fatal("it is not over with its only span")
				}
			}
			if got := estimate(spans[0]); (got >= 30*ms) != c.learns || !c.learns && got != alone {
				t.Errorf("after overruns of 30 ms a span takes %v, before %v", got, alone)
			}
			if got := estimate(spans...); (got >= 60*ms) != c.learns || !c.learns && got != together {
				t.Errorf("after overruns of 60 ms a group takes %v, before %v", got, together)
			}
		})
	}
}

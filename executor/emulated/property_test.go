package emulated

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments/wire"
)

// Whatever is sent, stopped and released, each round has one outcome, in order,
// and a span ends where it was told to or was stopped.
func TestAnyRounds(t *testing.T) {
	r := startRig(t, formula{operator: time.Microsecond, spread: 2})
	random := rand.New(rand.NewPCG(1, 2))
	type paused struct {
		batch models.BatchID
		at    int
	}
	at := [3]paused{}
	var lastBatch models.BatchID
	var expected, received uint64
	check := func(o executor.Outcome) {
		received++
		if o.Round != received {
			t.Fatalf("outcome of round %d, want %d", o.Round, received)
		}
		for _, s := range o.Spans {
			p := &at[s.Span.Service]
			switch {
			case s.Status == models.SpanDone && s.Reached != s.Span.End,
				s.Status == models.SpanStopped && (s.Reached < s.Span.Start || s.Reached >= s.Span.End),
				s.Finished != (s.Reached == operators), s.Finished != (len(s.Queries) == 1),
				s.Err != nil, s.Took > o.Took+time.Millisecond:
				t.Fatalf("round %d: %+v", o.Round, s)
			}
			if p.batch == s.Span.Batch {
				if p.at = s.Reached; s.Finished {
					*p = paused{}
				}
			}
		}
	}
	queries := [3][]wire.QueryTensors{}
	for i := range queries {
		queries[i] = r.inputs(models.ServiceID(i), 1, 1)
	}
	for range 2000 {
		var spans []executor.SpanRequest
		for id := range models.ServiceID(3) {
			p := &at[id]
			if p.batch == 0 {
				lastBatch++
				*p = paused{batch: lastBatch}
			}
			if random.IntN(3) == 0 {
				continue
			}
			s := executor.SpanRequest{Span: models.Span{Service: id, Batch: p.batch, Start: p.at, End: p.at + 1 + random.IntN(operators-p.at), Size: 1}}
			if p.at == 0 {
				s.Queries = queries[id]
			}
			spans = append(spans, s)
		}
		if len(spans) == 0 {
			continue
		}
		expected++
		r.run(expected, spans...)
		if random.IntN(3) == 0 {
			r.Stop(spans[0].Span.Service, spans[0].Span.Batch)
		}
		check(r.next())
		if id := models.ServiceID(random.IntN(3)); random.IntN(10) == 0 {
			r.Release(id, at[id].batch)
			at[id] = paused{}
		}
	}
	if received != expected {
		t.Errorf("%d outcomes of %d rounds", received, expected)
	}
	for i := range 3 {
		if state, err := r.State(models.ServiceID(i)); err != nil || state.OutputLeases != 0 || state.InFlight != 0 {
			t.Errorf("%+v, %v", state, err)
		}
	}
}

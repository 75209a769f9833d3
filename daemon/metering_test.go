package daemon

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
)

// A round of one query goes through the loop and is noted once.
func TestMeteringOfRounds(t *testing.T) {
	b := startInstant(t, 1, nil)
	a := newAsker(b, 0)
	const queries = 20
	for range queries {
		a.ask(t)
	}
	text := scrape(t, daemonOf(b))
	tells(t, text,
		fmt.Sprintf(`overlapd_rounds_total{device=""} %d`, queries),
		fmt.Sprintf(`overlapd_round_seconds_count %d`, queries),
		fmt.Sprintf(`overlapd_group_spans_sum %d`, queries),
		fmt.Sprintf(`overlapd_query_latency_seconds_count{service="s0"} %d`, queries),
		fmt.Sprintf(`overlapd_prediction_margin_ratio_count %d`, queries),
	)
	if turns := valueOf(t, text, "overlapd_scheduler_turns_total"); turns < queries {
		t.Errorf("%v turns", turns)
	}
}

// What is behind a note: the first deadline in the group, not that of others
// that wait, from its start on.
func TestMeteringOfHeadroom(t *testing.T) {
	b, f := startLoop(t, 2, func(c *config.Config) { c.Policy = "fcfs" })
	late := mustSubmit(t, b, 0)
	f.await()
	soon, err := submit(t, b, 1, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	b.Ask(func() {})
	f.end(models.SpanDone)
	f.await()
	f.end(models.SpanDone)
	for _, c := range []*query.Call{late, soon} {
		if err := answerOf(t, b, c); err != nil {
			t.Error(err)
		}
	}
	text := scrape(t, daemonOf(b))
	tells(t, text, `overlapd_dispatch_headroom_seconds_count 2`, `overlapd_dispatch_headroom_seconds_bucket{le="10"} 1`)
	if sum := valueOf(t, text, "overlapd_dispatch_headroom_seconds_sum"); sum > 70 || sum < 60 {
		t.Errorf("headrooms of one minute and ten seconds add up to %v s", sum)
	}
}

// A round that failed or was stopped says nothing of predictions.
func TestMeteringOfFailedRounds(t *testing.T) {
	b, f := startLoop(t, 1, nil)
	c := mustSubmit(t, b, 0)
	f.await()
	f.end(models.SpanFailed)
	wantError(t, answerOf(t, b, c), 500, query.ReasonModelFailed)
	tells(t, scrape(t, daemonOf(b)), `overlapd_round_seconds_count 1`, `overlapd_solo_prediction_ratio_count 0`, `overlapd_query_latency_seconds_count{service="s0"} 0`)
	f.refuse(true)
	c = mustSubmit(t, b, 0)
	if err := answerOf(t, b, c); err == nil {
		t.Error("a round that cannot be sent has outputs")
	}
	tells(t, scrape(t, daemonOf(b)), `overlapd_rounds_total{device=""} 2`, `overlapd_round_seconds_count 1`)
}

// meterings are ways to run a daemon: with nobody who watches, and with scrapes.
var meterings = []struct {
	name    string
	metrics bool
	pause   time.Duration // between two scrapes, 0 for none
}{
	{"metrics=off", false, 0},
	{"metrics=on", true, 0},
	{"metrics=on,scrapes=1/s", true, time.Second},
	{"metrics=on,scrapes=1000/s", true, time.Millisecond},
}

// BenchmarkMetering is the way of a query through the loop, on an executor that
// takes no time, with metrics and without, and while somebody scrapes.
func BenchmarkMetering(b *testing.B) {
	for _, services := range []int{2, 16} {
		for _, m := range meterings {
			b.Run(fmt.Sprintf("services=%d/%s", services, m.name), func(b *testing.B) {
				back := startInstant(b, services, func(c *config.Config) { c.Metrics = m.metrics })
				if m.pause > 0 {
					defer scrapeEvery(b, back, m.pause)()
				}
				var askers []*asker
				for i := range services {
					askers = append(askers, newAsker(back, i))
				}
				next := 0
				b.ReportAllocs()
				for b.Loop() {
					askers[next%services].ask(b)
					next++
				}
			})
		}
	}
}

// scrapeEvery scrapes until the function that it returns is called.
func scrapeEvery(t testing.TB, b *backend, pause time.Duration) (end func()) {
	text := daemonOf(b).newExporter("test")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := text(); err != nil {
					t.Error(err)
				}
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// BenchmarkOverhead compares daemons with metrics, and scrapes, with one without,
// block by block in turn, since machines change their speed. The median of the
// ratios is told; what the loop does takes all of the time.
func BenchmarkOverhead(b *testing.B) {
	const queries = 200 // of a block
	for _, m := range meterings[1:] {
		b.Run(m.name, func(b *testing.B) {
			off := newAsker(startInstant(b, 2, func(c *config.Config) { c.Metrics = false }), 0)
			back := startInstant(b, 2, nil)
			if m.pause > 0 {
				defer scrapeEvery(b, back, m.pause)()
			}
			on := newAsker(back, 0)
			block := func(a *asker) float64 {
				begin := time.Now()
				for range queries {
					a.ask(b)
				}
				return float64(time.Since(begin))
			}
			var ratios []float64
			for b.Loop() {
				ratios = append(ratios, block(on)/block(off))
			}
			slices.Sort(ratios)
			b.ReportMetric(100*(ratios[len(ratios)/2]-1), "overhead-%")
		})
	}
}

// BenchmarkNotes is what the loop notes of a round with two spans and a query,
// without the loop.
func BenchmarkNotes(b *testing.B) {
	back := startInstant(b, 2, nil)
	newAsker(back, 0).ask(b)
	back.Ask(func() {
		r := &overlap.Round{Group: models.Group{Spans: []models.Span{{Service: 0, End: 1, Size: 1}, {Service: 1, End: 1, Size: 1}}}}
		r.Predicted = models.Estimate{Latency: time.Millisecond, Bound: time.Millisecond}
		o := &executor.Outcome{Took: time.Millisecond, Spans: make([]executor.SpanOutcome, 2)}
		a := &overlap.Answer{At: time.Second}
		var e observe.Event
		note := func(next observe.Event) {
			e = next
			back.daemon.recorder.Observe(&e)
		}
		b.ReportAllocs()
		for b.Loop() {
			note(observe.Event{Kind: observe.Woke, At: back.Now()})
			note(observe.Event{Kind: observe.Dispatched, Round: r, Why: new(overlap.Explanation), Services: []models.Service{{Name: "s0"}, {ID: 1, Name: "s1"}}})
			note(observe.Event{Kind: observe.Ended, Outcome: new(models.Outcome), Measured: o})
			note(observe.Event{Kind: observe.Answered, Answer: a})
			note(observe.Event{Kind: observe.Rested, At: back.Now()})
		}
	})
}

// BenchmarkTold is how long a scrape waits for a status.
func BenchmarkTold(b *testing.B) {
	for _, services := range []int{2, 64} {
		b.Run(fmt.Sprintf("services=%d", services), func(b *testing.B) {
			back := startInstant(b, services, nil)
			b.ReportAllocs()
			for b.Loop() {
				back.StatusWithin(scrapeTimeout, false)
			}
		})
	}
}

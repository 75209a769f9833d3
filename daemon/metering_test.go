package daemon

import (
	"fmt"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/models"
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

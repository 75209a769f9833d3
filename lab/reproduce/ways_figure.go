package reproduce

import (
	"context"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/lab/sim"
)

// searchWays are the numbers of search ways in figure 23 (Abacus, section 7.7).
var searchWays = []int{1, 2, 4, 8, 16}

// waysRun is the cost of a variant's decisions with a number of search ways.
type waysRun struct {
	// variant and ways are what was run.
	variant variant
	ways    int

	// calls is the mean number of calls of the predictor for a decision.
	calls float64

	// groups is the mean number of groups predicted for a decision.
	groups float64

	// median is the median time of a decision.
	median time.Duration
}

// serve runs a trial and records, for every decision, the calls of the predictor, the number of
// groups, and the time. No group is chosen ahead, so that a decision is one call.
func (r *waysRun) serve(l *lane, t *trial) error {
	d, err := l.device(t.stock)
	if err != nil {
		return err
	}
	sc := t.scenario(d)
	sc.Ways, sc.Plan = r.ways, false
	calls, groups := 0, 0
	var took []time.Duration
	// Without choosing ahead, each round has exactly one decision.
	sc.Observer.Round = func(d *sim.Round) {
		calls, groups, took = calls+d.Calls, groups+d.Groups, append(took, d.Decision)
	}
	if _, err := sim.Run(sc); err != nil {
		return err
	}
	rounds := float64(max(len(took), 1))
	r.calls, r.groups, r.median = float64(calls)/rounds, float64(groups)/rounds, stats.Median(took)
	return nil
}

// decisionTime is the time of a decision, which differs from run to run.
type decisionTime struct {
	// Policy is the variant's name, and Ways the number of search ways.
	Policy string `json:"policy"`
	Ways   int    `json:"ways"`

	// Median is in microseconds.
	Median float64 `json:"median_us"`
}

// planWays plans figure 23. The times of decisions belong to the timing.
func planWays(r *reproduction) func() []*figure {
	s := r.quad()
	if s == nil {
		return nil
	}
	t := trial{stock: s, deploy: s.quadruplet(), arrivals: poisson(fullLoad), queries: r.options.Queries, seed: r.options.Seed}
	var runs []*waysRun
	for _, v := range among(r.variants, overlapping...) {
		t.variant = v
		for _, ways := range searchWays {
			// Each job has a copy of the trial.
			run, t := &waysRun{variant: v, ways: ways}, t
			runs = append(runs, run)
			r.plan.add("figure 23", secondsOf(t.queries), func(_ context.Context, l *lane) error { return run.serve(l, &t) })
		}
	}
	return func() []*figure {
		f := &figure{Figure: "23", Title: "search ways: predictions for a decision", Unit: "for each decision, mean", decimals: 1, Notes: []string{
			"The four services of figure 18 at 100 queries per second. The paper: most decisions take fewer than 3 calls with four ways and 0.26 ms; one call takes 0.066 ms with one way, 0.088 ms with more. The time of a decision here is in run.json and on the terminal, because it differs from run to run. One of our calls may predict all groups that do not depend on another answer, even without a search.",
		}}
		for _, k := range runs {
			row := row{Case: fmt.Sprintf("calls, %d ways", k.ways), Policy: k.variant.name, Ours: rounded(k.calls)}
			if k.ways == 4 && k.variant.name == "abacus-authors" {
				row.Paper, row.Section = rounded(3), "7.7"
			}
			f.Rows = append(f.Rows, row)
		}
		for _, k := range runs {
			f.Rows = append(f.Rows, row{Case: fmt.Sprintf("groups asked about, %d ways", k.ways), Policy: k.variant.name, Ours: rounded(k.groups)})
			r.result.timing.Decisions = append(r.result.timing.Decisions, decisionTime{k.variant.name, k.ways, float64(k.median.Nanoseconds()) / 1e3})
		}
		return []*figure{f}
	}
}

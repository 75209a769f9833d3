package reproduce

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/sim"
	"github.com/overlapd/overlapd/stats"
)

// searchWays are those of figure 23.
var searchWays = []int{1, 2, 4, 8, 16}

type waysRun struct {
	variant variant
	ways    int
	calls   float64 // predictor calls per decision
	groups  float64 // predicted per decision
	median  time.Duration
}

// serve serves a trial and looks at every decision: how often the predictor is
// asked for it, about how many groups, and how long it takes. Nothing is chosen
// ahead, so that a decision is one call.
func (r *waysRun) serve(l *lane, t *trial) error {
	d, err := l.device(t.stock)
	if err != nil {
		return err
	}
	sc := t.scenario(d)
	sc.Ways, sc.Plan = r.ways, false
	rounds, calls, groups := 0.0, 0, 0
	var took []time.Duration
	sc.Observer.Round = func(d *sim.Round) {
		rounds++
		calls, groups, took = calls+d.Calls, groups+d.Groups, append(took, d.Decision)
	}
	if _, err := sim.Run(sc); err != nil {
		return err
	}
	r.calls, r.groups, r.median = float64(calls)/max(rounds, 1), float64(groups)/max(rounds, 1), stats.Median(took)
	return nil
}

// decisionTime is what a decision took, which differs from run to run.
type decisionTime struct {
	Policy string  `json:"policy"`
	Ways   int     `json:"ways"`
	Median float64 `json:"median_us"`
}

// planWays plans figure 23. The times of decisions go to the timing.
func planWays(p *plan, o *Options, s *stock, list []variant) func(*timing) *figure {
	deploy := &beyondPairs(sizesBeyondPairs(s.measured))[len(quadModels)]
	var runs []*waysRun
	for _, v := range list {
		if !slices.Contains(overlapping, v.name) {
			continue
		}
		for _, ways := range searchWays {
			r := &waysRun{variant: v, ways: ways}
			runs = append(runs, r)
			p.add("figure 23", v.seconds(o.Queries), func(_ context.Context, l *lane) error {
				return r.serve(l, &trial{stock: s, deploy: deploy, variant: v, arrivals: poisson(fullLoad), queries: o.Queries, seed: o.Seed})
			})
		}
	}
	return func(timing *timing) *figure {
		f := &figure{Figure: "23", Title: "search ways: what a decision asks of the predictor", Unit: "for each decision, mean", decimals: 1, Notes: []string{
			fmt.Sprintf("The four services of figure 18 at 100 queries per second. The paper: most decisions take fewer than %d calls with four ways and %.2f ms; one call takes %.3f ms with one way, %.3f ms with more. What a decision took here is in run.json and on the terminal, since it differs from run to run. A call of ours may ask about all that does not depend on an answer, also without searching.",
				paperPredictions, paperDecision, paperOneWay, paperMoreWays),
		}}
		for _, what := range []string{"calls", "groups asked about"} {
			for _, r := range runs {
				value := r.calls
				row := row{Case: fmt.Sprintf("%s, %d ways", what, r.ways), Policy: r.variant.name}
				if what == "calls" {
					if r.ways == 4 && r.variant.name == "abacus" {
						row.Paper, row.Section = rounded(paperPredictions), "7.7"
					}
				} else {
					value = r.groups
				}
				row.Ours = rounded(value)
				f.Rows = append(f.Rows, row)
			}
		}
		for _, r := range runs {
			timing.Decisions = append(timing.Decisions, decisionTime{r.variant.name, r.ways, float64(r.median.Nanoseconds()) / 1e3})
		}
		return f
	}
}

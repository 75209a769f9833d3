package residency

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/overlapd/overlapd/internal/report"
)

// Grid is what is compared: all policies, at each load, for each fraction of short targets.
type Grid struct {
	Policies []string
	Loads    []float64
	Short    []float64

	// Seeds is the number of runs of which the mean is taken, from the seed of the scenario on.
	Seeds int
}

// Run simulates a grid. The results are ordered by targets, loads and policies. Progress is called with
// the fraction that is done.
func (g *Grid) Run(sc Scenario, progress func(float64)) ([]Result, error) {
	if len(g.Policies) == 0 || len(g.Loads) == 0 || len(g.Short) == 0 || g.Seeds < 1 {
		return nil, errors.New("nothing to simulate: give at least one policy, load, fraction of short targets and seed")
	}
	var scenarios []Scenario
	var policies []string
	for _, sc.Short = range g.Short {
		for _, sc.Load = range g.Loads {
			if err := sc.check(); err != nil {
				return nil, err
			}
			for _, p := range g.Policies {
				if _, err := newPolicy(p, &world{Scenario: sc}); err != nil {
					return nil, err
				}
				for seed := range g.Seeds {
					one := sc
					one.Seed += uint64(seed)
					scenarios, policies = append(scenarios, one), append(policies, p)
				}
			}
		}
	}
	results := make([]Result, len(scenarios))
	// Runs are independent. Their results are put in order, so that it does not matter which ends first.
	jobs, done := make(chan int), 0
	var mu sync.Mutex
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range jobs {
				results[i], _ = Run(scenarios[i], policies[i]) // which were checked
				mu.Lock()
				done++
				progress(float64(done) / float64(len(scenarios)))
				mu.Unlock()
			}
		})
	}
	for i := range scenarios {
		jobs <- i
	}
	close(jobs)
	workers.Wait()
	var means []Result
	for seeds := range slices.Chunk(results, g.Seeds) {
		means = append(means, mean(seeds))
	}
	return means, nil
}

// mean returns the mean of results of the same policy, load and targets.
func mean(list []Result) Result {
	sum, n := list[0], float64(len(list))
	for _, r := range list[1:] {
		sum.Queries += r.Queries
		sum.Violations += r.Violations
		sum.Rejected += r.Rejected
		sum.Cold += r.Cold
		sum.Loads += r.Loads
		sum.Evictions += r.Evictions
		sum.Loading += r.Loading
	}
	for _, f := range []*float64{&sum.Queries, &sum.Violations, &sum.Rejected, &sum.Cold, &sum.Loads, &sum.Evictions, &sum.Loading} {
		*f /= n
	}
	return sum
}

// Document reports results, each in a row.
func Document(results []Result) *report.Document {
	d := new(report.Document)
	t := report.NewTable("short targets", "load", "policy", "violations", "of lru's", "waited for a load", "loads/s", "evictions/s", "loading")
	for _, r := range results {
		ofLRU := ""
		for _, other := range results {
			if other.Policy == "lru" && other.Load == r.Load && other.Short == r.Short && other.Violations > 0 {
				ofLRU = fmt.Sprintf("%.2f", r.Violations/other.Violations)
			}
		}
		t.Rowf("%g %%\t%g\t%s\t%.2f %%\t%s\t%.2f %%\t%.2f\t%.2f\t%.0f %%",
			100*r.Short, r.Load, r.Policy, 100*r.Violations, ofLRU, 100*r.Cold, r.Loads, r.Evictions, 100*r.Loading)
	}
	d.Table(t)
	return d
}

// WriteMarkdown writes results in the form of the pages in docs/benchmarks: a table for each quantity,
// with a row for each policy.
func WriteMarkdown(w io.Writer, results []Result) error {
	var b strings.Builder
	for _, q := range []struct {
		title string
		of    func(*Result) float64
	}{
		{"violations, percent", func(r *Result) float64 { return 100 * r.Violations }},
		{"queries that waited for a load, percent", func(r *Result) float64 { return 100 * r.Cold }},
		{"loads per second", func(r *Result) float64 { return r.Loads }},
		{"evictions per second", func(r *Result) float64 { return r.Evictions }},
	} {
		fmt.Fprintf(&b, "## %s\n\n| short targets, load |", q.title)
		var policies []string
		rows := map[string]string{}
		rule := "|---|"
		for i := range results {
			r := &results[i]
			if _, known := rows[r.Policy]; !known {
				policies = append(policies, r.Policy)
			}
			if r.Policy == results[0].Policy {
				fmt.Fprintf(&b, " %g %%, %g |", 100*r.Short, r.Load)
				rule += "--:|"
			}
			rows[r.Policy] += fmt.Sprintf(" %.2f |", q.of(r))
		}
		fmt.Fprintf(&b, "\n%s\n", rule)
		for _, p := range policies {
			fmt.Fprintf(&b, "| %s |%s\n", p, rows[p])
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}

package ledger

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"

	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/overlap"
)

const (
	mostViolations = 0.01 // of the queries, at the highest load
	overload       = 2.0  // times the highest load with all rules
	precision      = 1.003
	firstLoad      = 100.0 // queries a second, from where the highest load is searched
	step           = 1.3
)

// options of a run.
type options struct {
	Seeds   int // runs at each load
	Queries int // of each run, for each device
	Workers int // simulations at the same time
}

// entry is what a mix loses without a rule, in percent: of the highest load, and of the
// queries that are in time at twice that load. Less than 0 means that the mix gains.
type entry struct {
	mix, Rule      string
	Load, Overload float64
}

// worst is what the entry says for a rule, or, if that is less, against it.
func (e entry) most() float64  { return max(e.Load, e.Overload) }
func (e entry) least() float64 { return min(e.Load, e.Overload) }

// measureAll measures every rule on every mix. It calls each as an entry is known, in no order.
func measureAll(ctx context.Context, mixes []mix, o options, each func(entry)) ([]entry, error) {
	var (
		all     sync.WaitGroup
		mu      sync.Mutex
		entries []entry
		failed  error
	)
	free := make(chan struct{}, o.Workers)
	run := func(do func() error) {
		all.Go(func() {
			free <- struct{}{}
			err := ctx.Err()
			if err == nil {
				err = do()
			}
			<-free
			mu.Lock()
			defer mu.Unlock()
			if failed == nil {
				failed = err
			}
		})
	}
	for _, mix := range mixes {
		run(func() error {
			with, err := measure(ctx, &mix, "overlap", firstLoad, 0, o)
			if err != nil {
				return fmt.Errorf("%s: %w", mix.Name, err)
			}
			for _, r := range overlap.Rules() {
				run(func() error {
					found, err := measure(ctx, &mix, "overlap-without:"+r.Name, with.load, overload*with.load, o)
					if err != nil {
						return fmt.Errorf("%s without %s: %w", mix.Name, r.Name, err)
					}
					e := entry{mix.Name, r.Name, 100 * (1 - found.load/with.load), 100 * (1 - found.inTime/with.inTime)}
					mu.Lock()
					defer mu.Unlock()
					entries = append(entries, e)
					each(e)
					return nil
				})
			}
			return nil
		})
	}
	all.Wait()
	return entries, failed
}

// measured is the highest load of a mix, and the share in time at another load.
type measured struct{ load, inTime float64 }

// measure finds the highest load of a policy by bisection, from a load on, and the share in
// time at a load; at 0 that is overload times the highest one.
func measure(ctx context.Context, m *mix, policy string, from, at float64, o options) (found measured, err error) {
	violations := func(qps float64) float64 {
		sum := 0.0
		for seed := range o.Seeds {
			if err == nil {
				err = ctx.Err()
			}
			if err != nil {
				return 1
			}
			var sc sim.Scenario
			if sc, err = m.Scenario(); err != nil {
				return 1
			}
			sc.Policy, sc.Plan, sc.Seed = policy, true, uint64(seed+1)
			sc.Queries = o.Queries * max(sc.Devices, 1)
			sc.Arrivals = sim.Arrivals{Process: sim.Poisson, QPS: qps}
			var r *sim.Result
			if r, err = sim.Run(sc); err != nil {
				return 1
			}
			sum += promised(&sc, r)
		}
		return sum / float64(o.Seeds)
	}
	low, high := 0.0, from
	for err == nil && violations(high) <= mostViolations {
		low, high = high, step*high
	}
	for low = max(low, high/step); err == nil && low < from && violations(low) > mostViolations; {
		low, high = low/step, low
	}
	for err == nil && high/low > precision {
		if mid := math.Sqrt(low * high); violations(mid) <= mostViolations {
			low = mid
		} else {
			high = mid
		}
	}
	if at == 0 {
		at = overload * low
	}
	found = measured{low, 1 - violations(at)}
	return found, err
}

// promised returns the violations of all queries but those of best effort.
func promised(sc *sim.Scenario, r *sim.Result) float64 {
	violated, all := 0.0, 0
	for i := range r.Services {
		if s := &r.Services[i]; !sc.Services[i].BestEffort {
			violated, all = violated+s.Violations*float64(s.Queries), all+s.Queries
		}
	}
	return violated / float64(max(all, 1))
}

// earns is how much a rule must gain on one mix, and how much it may cost on another, in
// percent.
const earns = 1.0

// verdict says whether a rule earns its place, and where it gains and costs most.
type verdict struct {
	Rule         string
	Gains, Costs entry
	earns        bool
}

// judge sums up the entries of each rule, in the order of the rules.
func judge(entries []entry) (verdicts []verdict) {
	for _, r := range overlap.Rules() {
		v := verdict{Rule: r.Name}
		for _, e := range entries {
			if e.Rule != r.Name {
				continue
			}
			if v.Gains.mix == "" || e.most() > v.Gains.most() {
				v.Gains = e
			}
			if v.Costs.mix == "" || e.least() < v.Costs.least() {
				v.Costs = e
			}
		}
		v.earns = v.Gains.most() >= earns && v.Costs.least() >= -earns
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// writeTable writes a table of all entries as Markdown: what each mix loses without each rule, of
// the highest load and, after the slash, of the queries in time under overload.
func writeTable(w io.Writer, mixes []mix, entries []entry) error {
	var b strings.Builder
	b.WriteString("| without |")
	for _, m := range mixes {
		fmt.Fprintf(&b, " %s |", m.Name)
	}
	b.WriteString(" verdict |\n|---|" + strings.Repeat("--:|", len(mixes)) + "---|\n")
	for _, v := range judge(entries) {
		fmt.Fprintf(&b, "| %s |", v.Rule)
		for _, m := range mixes {
			for _, e := range entries {
				if e.Rule == v.Rule && e.mix == m.Name {
					fmt.Fprintf(&b, " %.1f / %.1f |", e.Load, e.Overload)
				}
			}
		}
		says := "earns its place"
		switch {
		case v.Gains.most() < earns:
			says = "gains nothing"
		case !v.earns:
			says = fmt.Sprintf("costs %.1f %% on %s", -v.Costs.least(), v.Costs.mix)
		}
		fmt.Fprintf(&b, " %s |\n", says)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

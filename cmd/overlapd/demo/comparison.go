package demo

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/internal/cli"
	"github.com/overlapd/overlapd/internal/report"
	"github.com/overlapd/overlapd/lab/sim"
	"github.com/overlapd/overlapd/lab/synthetic"
)

// policies are what is compared, ours last.
var policies = []string{"fcfs", "edf", "abacus", ourPolicy}

// comparison is what came out in virtual time.
type comparison struct {
	// QPS is what all were put under.
	QPS      float64  `json:"qps"`
	Policies []policy `json:"policies"`
	// Gain is the highest load of ours over that of mergingPolicy, OverBest over that of the best other.
	Gain     float64 `json:"gain"`
	Best     string  `json:"best_other"`
	OverBest float64 `json:"gain_over_best_other"`
	Seed     uint64  `json:"seed"`
	Device   string  `json:"device"`
	Commit   string  `json:"commit"`
}

// policy is what came out under a policy.
type policy struct {
	Policy     string  `json:"policy"`
	GoodputQPS float64 `json:"goodput_qps"`
	Violations float64 `json:"violations"`
	// HighestQPS is the highest load with at most mostViolations.
	HighestQPS float64 `json:"highest_qps"`

	serve func(qps float64, watch func(*sim.Round)) (*sim.Result, error)
	// spans are of the load that all were put under.
	spans []span
}

// newComparison returns the policies with the load that they are to serve.
func newComparison(seed uint64, virtual time.Duration) (*comparison, error) {
	profile, trained := synthetic.Device(), synthetic.Predictor()
	c := &comparison{QPS: offeredQPS, Policies: make([]policy, len(policies)), Seed: seed, Device: "emulated: " + profile.Device, Commit: cli.Commit()}
	for i, name := range policies {
		// Each its own, since a device remembers what it was asked, and policies run at the same time.
		on, err := device.NewModel(profile)
		if err != nil {
			return nil, err
		}
		c.Policies[i] = policy{Policy: name, serve: func(qps float64, watch func(*sim.Round)) (*sim.Result, error) {
			sc := sim.Scenario{
				Arrivals: sim.Arrivals{Process: sim.Poisson, QPS: qps, Scale: 1, Keep: 1}, Queries: max(int(qps*virtual.Seconds()), 1),
				Seed: seed, Policy: name, Plan: true, Device: on, DeviceName: profile.Device, Predictor: trained,
			}
			sc.Observer.Round = watch
			for _, s := range services {
				sc.Services = append(sc.Services, sim.Service{Name: s.model, Target: s.target, MaxBatch: maxBatch, Sizes: sizes, SeqLens: s.seqLens})
			}
			return sim.Run(sc)
		}}
	}
	return c, nil
}

// judge puts ours beside the best of the others.
func (c *comparison) judge() {
	others, ours := c.Policies[:len(c.Policies)-1], c.Policies[len(c.Policies)-1]
	best := slices.MaxFunc(others, func(a, b policy) int { return cmp.Compare(a.HighestQPS, b.HighestQPS) })
	c.Best, c.OverBest = best.Policy, ours.HighestQPS/best.HighestQPS
	c.Gain = ours.HighestQPS / others[slices.Index(policies, mergingPolicy)].HighestQPS
}

// each does something with all policies at once.
func (c *comparison) each(do func(*policy) error) error {
	faults := make([]error, len(c.Policies))
	var all sync.WaitGroup
	for i := range c.Policies {
		all.Go(func() { faults[i] = do(&c.Policies[i]) })
	}
	all.Wait()
	return errors.Join(faults...)
}

// record serves the load of all and keeps what came out, and what ran when.
func (p *policy) record() error {
	r, err := p.serve(offeredQPS, func(r *sim.Round) {
		for _, s := range r.Spans {
			p.spans = append(p.spans, span{s.Service, r.Start, r.End})
		}
	})
	if err == nil {
		p.GoodputQPS, p.Violations = r.GoodputQPS, r.Violations
	}
	return err
}

// findHighest finds about the highest load with few violations: it doubles the load until that is too
// much, and then halves the distance. Every run is a fraction of a second.
func (p *policy) findHighest() error {
	const (
		first = 200 // queries per second, which all policies sustain
		// near is the ratio of what is too much to what is found at which it is found well enough.
		near = 1.02
	)
	tooMuch := math.Inf(1)
	for qps := float64(first); tooMuch/p.HighestQPS > near; {
		r, err := p.serve(qps, nil)
		if err != nil {
			return err
		}
		if r.Violations > mostViolations {
			tooMuch = qps
		} else {
			p.HighestQPS = qps
		}
		if qps = (p.HighestQPS + tooMuch) / 2; math.IsInf(tooMuch, 1) {
			qps = 2 * p.HighestQPS
		}
	}
	return nil
}

// write gives the numbers.
func (c *comparison) write(p *painter) error {
	d := new(report.Document)
	targets := make([]string, len(services))
	for i, s := range services {
		targets[i] = fmt.Sprintf("%s %v", s.model, s.target)
	}
	d.Text("%.0f queries/s, batch sizes %v; targets: %s", c.QPS, sizes, strings.Join(targets, ", "))
	t := report.NewTable("", "in time/s", "late or rejected", "highest load with at most 1 % of them")
	for _, p := range c.Policies {
		t.Rowf("%s\t%.0f\t%.1f %%\t%.0f/s", p.Policy, p.GoodputQPS, 100*p.Violations, p.HighestQPS)
	}
	d.Table(t)
	fmt.Fprintln(p.to)
	if err := d.WriteText(p.to); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.to, "\n%s\n", p.bold(fmt.Sprintf("overlap sustains %.2f times the load of %s, which also batches, and %.2f times that of\nthe best other policy (%s), with at most 1 %% late or rejected.", c.Gain, mergingPolicy, c.OverBest, c.Best)))
	return err
}

// draw shows what ran when, one batch at a time and under ours.
func (c *comparison) draw(p *painter) error {
	fmt.Fprintf(p.picture, "\nThe GPU is emulated: all times are formulas, and nothing is computed (docs/device.md).\n")
	for _, shown := range []struct{ policy, how string }{
		{mergingPolicy, "one batch at a time"},
		{ourPolicy, "operators of several services at the same time"},
	} {
		i := slices.Index(policies, shown.policy)
		fmt.Fprintf(p.picture, "\n  %s: %s\n\n", shown.policy, shown.how)
		p.lanes(c.Policies[i].spans)
	}
	return p.picture.Flush()
}

package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/overlapd/overlapd/cuda"
)

// step is one part of a check.
type step struct {
	name  string
	title string
	share float64 // of the budget, relative to those of the others: seconds of the default one
	run   func(*check, context.Context) error
}

// steps are all parts, in the order in which they run: later ones use what earlier
// ones found.
var steps = []step{
	{"facts", "What the machine has", 2, (*check).lookAround},
	{"outputs", "Outputs against the CPU's", 50, (*check).compareOutputs},
	{"cuts", "Cut against whole", 90, (*check).measureCuts},
	{"sessions", "Time and memory of each segment", 35, (*check).measureSessions},
	{"variants", "Other ways of running a model", 12, (*check).measureVariants},
	{"mps", "What MPS prints and does", 14, (*check).lookAtMPS},
	{"pairs", "Two services together", 55, (*check).measurePairs},
	{"repeat", "One group, again and again", 12, (*check).repeatGroup},
	{"profile", "Profile and predictor", 100, (*check).profile},
	{"load", "Load under each policy", 126, (*check).loadPolicies},
}

// check is one run of all steps.
type check struct {
	Options
	report   *Report
	close    []func() error             // what a step left open for the next ones, in order
	state    string                     // folder of what was profiled, "" until then
	nvml     func() (*cuda.Host, error) // nil for the host's
	patience time.Duration              // with a client, 0 for clientPatience
	mps      *shared                    // nil until services run together, and where there is none
}

// Run checks a device. The error tells of options that make no sense and of a
// report that cannot be written; what goes wrong in a step is in the report.
func Run(ctx context.Context, o Options) (*Report, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if o.Progress == nil {
		o.Progress = func(string) {}
	}
	if err := os.MkdirAll(o.Out, 0o755); err != nil {
		return nil, err
	}
	c := &check{Options: o, report: newReport(&o, time.Now())}
	err := c.runAll(ctx, steps)
	for len(c.close) > 0 {
		last := len(c.close) - 1
		err = errors.Join(err, c.close[last]())
		c.close = c.close[:last]
	}
	return c.report, err
}

// runAll runs the steps and saves after each. Time that a step leaves is the
// others'.
func (c *check) runAll(ctx context.Context, list []step) error {
	began := time.Now()
	end := began.Add(c.Budget)
	for i, s := range list {
		shares := 0.0
		for _, later := range list[i:] {
			shares += later.share
		}
		budget := time.Duration(float64(time.Until(end)) * s.share / shares)
		c.Progress(fmt.Sprintf("%d of %d: %s (at most %v)", i+1, len(list), s.title, budget.Round(time.Second)))
		result := c.runStep(ctx, s, budget)
		if result.Error != "" {
			c.Progress(fmt.Sprintf("  %s: %s", result.Status, result.Error))
		}
		c.report.Steps = append(c.report.Steps, result)
		c.report.Seconds = time.Since(began).Seconds()
		c.report.judge()
		if err := c.report.save(c.Out); err != nil {
			return err
		}
	}
	return nil
}

func (c *check) runStep(ctx context.Context, s step, budget time.Duration) StepResult {
	r := StepResult{Name: s.name, Title: s.title, Status: Done, Budget: budget.Seconds()}
	if ctx.Err() != nil || budget <= 0 {
		r.Status = Left
		return r
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	err := s.run(c, limited)
	r.Seconds = time.Since(began).Seconds()
	switch {
	case ctx.Err() != nil:
		r.Status, r.Error = Left, "interrupted"
	case err != nil && limited.Err() != nil:
		r.Status, r.Error = OutOfTime, fmt.Sprintf("its %v were spent before it was through", budget.Round(time.Second/10))
	case err != nil:
		r.Status, r.Error = Failed, err.Error()
	}
	return r
}

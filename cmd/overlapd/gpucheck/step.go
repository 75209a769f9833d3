package gpucheck

import (
	"context"
	"fmt"
	"time"
)

// step is one part of a check.
type step struct {
	name  string
	title string
	limit time.Duration // of the default budget; another budget is divided alike
	run   func(*check, context.Context) error
}

// steps are all parts, in the order in which they run: later ones use what earlier
// ones found.
var steps = []step{
	{"facts", "What the machine has", 10 * time.Second, (*check).lookAround},
	{"outputs", "Outputs against the CPU's", 45 * time.Second, (*check).compareOutputs},
	{"cuts", "Cut against whole", 70 * time.Second, (*check).measureCuts},
	{"sessions", "Time and memory of each segment", 30 * time.Second, (*check).measureSessions},
	{"variants", "Other ways of running a model", 12 * time.Second, (*check).measureVariants},
	{"mps", "What MPS prints and does", 16 * time.Second, (*check).lookAtMPS},
	{"pairs", "Two services together", 50 * time.Second, (*check).measurePairs},
	{"repeat", "One group, again and again", 12 * time.Second, (*check).repeatGroup},
	{"profile", "Profile and predictor", 90 * time.Second, (*check).profile},
	{"load", "Load under each policy", 105 * time.Second, (*check).loadPolicies},
}

// hungGrace is how long a step may take to end after its time is up. All that it
// waits for is ended then; a step that is not through all the same waits for a
// driver that hangs, and so would those behind it.
const hungGrace = 8 * time.Second

// runAll runs the steps and saves after each. Time that a step leaves is the
// others'. A step that hangs is the last one.
func (c *check) runAll(ctx context.Context, list []step) error {
	began := time.Now()
	end := began.Add(c.Budget)
	hung := false
	for i, s := range list {
		var limits time.Duration
		for _, later := range list[i:] {
			limits += later.limit
		}
		budget := time.Duration(float64(time.Until(end)) * float64(s.limit) / float64(limits))
		var result StepResult
		if hung {
			result = s.result(budget)
			result.Status, result.Error = Left, "the step before it hangs, and so would this one"
		} else {
			c.Progress(fmt.Sprintf("%d of %d: %s (at most %v)", i+1, len(list), s.title, budget.Round(time.Second)))
			result, hung = c.runStep(ctx, s, budget)
		}
		if result.Error != "" {
			c.Progress(fmt.Sprintf("  %s: %s", result.Status, result.Error))
		}
		if err := c.ended(result, began); err != nil {
			return err
		}
	}
	return nil
}

func (s *step) result(budget time.Duration) StepResult {
	return StepResult{Name: s.name, Title: s.title, Status: Done, Budget: max(budget, 0).Seconds()}
}

// runStep runs a step with a limit, and reports whether it hangs: then it still
// runs, and may still note what it finds.
func (c *check) runStep(ctx context.Context, s step, budget time.Duration) (r StepResult, hung bool) {
	r = s.result(budget)
	if ctx.Err() != nil || budget <= 0 {
		r.Status = Left
		return r, false
	}
	began := time.Now()
	limited, cancel := context.WithTimeout(ctx, budget)
	defer cancel()
	through := make(chan error, 1)
	go func() { through <- s.run(c, limited) }()
	err, hung := c.await(limited, through)
	r.Seconds = time.Since(began).Seconds()
	switch {
	case hung:
		r.Status, r.Error = OutOfTime, fmt.Sprintf("it hangs: it was told to end after %v and did not within %v more; look for Xid messages (dmesg)",
			budget.Round(time.Second/10), c.hungAfter())
	case ctx.Err() != nil:
		r.Status, r.Error = Left, "interrupted"
	case err != nil && limited.Err() != nil:
		r.Status, r.Error = OutOfTime, fmt.Sprintf("its %v were spent before it was through", budget.Round(time.Second/10))
	case err != nil:
		r.Status, r.Error = Failed, err.Error()
	}
	return r, hung
}

// await waits for a step, and for a moment longer than its time.
func (c *check) await(limited context.Context, through <-chan error) (err error, hung bool) {
	select {
	case err := <-through:
		return err, false
	case <-limited.Done():
	}
	late := time.NewTimer(c.hungAfter())
	defer late.Stop()
	select {
	case err := <-through:
		return err, false
	case <-late.C:
		return nil, true
	}
}

package gpu

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"sync"
	"time"
)

// mixedRow is how well groups of so many spans are predicted where two batch sizes are
// served, as overlapd replay has it.
type mixedRow struct {
	Spans  int     `json:"spans"`
	Rounds int     `json:"rounds"`
	MAPE   float64 `json:"mape"` // percent
	P50    float64 `json:"p50"`  // of measured by predicted
	P99    float64 `json:"p99"`
}

// loadMixed puts queries of two batch sizes on a daemon, each half of the work, and replays
// its log of decisions, which compares what was predicted with what was measured. Batches
// of several queries have sizes in between.
func (c *check) loadMixed(ctx context.Context) (err error) {
	both := c.bothSizes()
	if err := c.profiled(); err != nil {
		return err
	}
	// Targets leave time for the larger size, which would be dropped else.
	d, err := c.serve(ctx, served{services: c.services, policy: overlapping, log: true, patience: 2 * both[1]})
	if err != nil {
		return err
	}
	stop := sync.OnceValue(d.stop)
	defer func() { err = errors.Join(err, stop()) }()
	seconds := max(min(time.Duration(mixedShare*float64(c.load)), timeLeft(ctx)/2)-turnWarmup-turnSlack, leastTurn).Seconds()
	var wait sync.WaitGroup
	faults := make([]error, len(both))
	for i, batch := range both {
		sum := cmp.Or(c.work(batch), float64(batch)*c.work(1)) // pairs may not have measured this size
		rate := min(c.loads[len(c.loads)/2]*float64(len(c.services))*1000/sum, c.maxRate) / 2
		wait.Go(func() { _, faults[i] = c.put(ctx, []*serving{d}, batch, rate, seconds, turnWarmup, seed+i) })
	}
	wait.Wait()
	if err := errors.Join(append(faults, stop())...); err != nil { // its log is whole once it has ended
		return err
	}
	var replayed struct {
		Errors []mixedRow `json:"measured_over_predicted"`
	}
	if err := c.ask(ctx, &replayed, "replay", filepath.Join(d.dir, "decisions.log"), "--json"); err != nil {
		return err
	}
	for _, row := range replayed.Errors {
		keep(c, &c.mu.Mixed, row)
	}
	return nil
}

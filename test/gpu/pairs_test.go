package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/internal/stats"
)

const (
	// minRounds is how often a pair runs at least, and steadyRounds how often for its
	// spread to mean something: as in the paper (section 5.4).
	minRounds    = 5
	steadyRounds = 100
)

// pairRow compares two services that run together with the same two one after
// the other. Times are medians.
type pairRow struct {
	A            string  `json:"a"` // services
	B            string  `json:"b"`
	Batch        int     `json:"batch"`
	MPS          bool    `json:"mps"`
	Rounds       int     `json:"rounds"`
	AloneAMS     float64 `json:"alone_a_ms"`
	AloneBMS     float64 `json:"alone_b_ms"`
	SequentialMS float64 `json:"sequential_ms"` // both, one after the other
	TogetherMS   float64 `json:"together_ms"`
	Gain         float64 `json:"gain"`   // sequential / together
	Spread       float64 `json:"spread"` // of together: standard deviation by mean
}

var servicePairs = [][2]int{{0, 1}, {0, 2}, {1, 2}}

// turnsGain is how much a pair may gain where services take turns on the GPU.
const turnsGain = 1.1

// measurePairs measures every two of the three services, without MPS and, where
// there is a GPU, with it.
func (c *check) measurePairs(ctx context.Context) error {
	c.rest = len(servicePairs) * len(c.batches)
	if c.rehearsal() {
		return c.pairsUnder(ctx, nil, false)
	}
	c.rest *= 2
	half, cancel := context.WithTimeout(ctx, timeLeft(ctx)/2)
	err := c.pairsUnder(half, mps.OffEnv(c.gpu), false)
	cancel()
	env := c.workerEnv(ctx)
	merr := c.noMPS
	if merr == nil && ctx.Err() == nil {
		merr = c.pairsUnder(ctx, env, true)
	}
	if ctx.Err() == nil {
		c.expect([]string{"C7"}, merr == nil, "pairs under MPS: %v", merr)
	}
	return errors.Join(err, merr, ctx.Err())
}

// startMPS starts a control daemon of our own, once, which ends with the check.
func (c *check) startMPS(ctx context.Context) {
	if c.rehearsal() || c.control != nil || c.noMPS != nil {
		return
	}
	dir, err := os.MkdirTemp("", "mps") // a socket's path must be short
	if err == nil {
		c.top.Cleanup(func() { _ = os.RemoveAll(dir) })
		c.control, err = mps.Start(ctx, mps.Options{Program: c.mpsProgram, Device: c.gpu, Directory: dir})
	}
	if err != nil {
		c.noMPS = fmt.Errorf("MPS: %w", err)
		return
	}
	c.top.Cleanup(c.stopMPS)
}

func (c *check) stopMPS() {
	if c.control == nil {
		return
	}
	if err := c.control.Stop(); err != nil {
		c.t.Error(err)
	}
	c.control = nil
}

// workerEnv returns the environment of a worker as it is in most steps, under MPS where
// it starts: nil for ours, where there is no GPU.
func (c *check) workerEnv(ctx context.Context) []string {
	switch c.startMPS(ctx); {
	case c.rehearsal():
		return nil
	case c.control == nil:
		return mps.OffEnv(c.gpu)
	}
	return c.control.ClientEnv(mps.Limits{})
}

// pairsUnder measures all pairs with workers of this environment.
func (c *check) pairsUnder(ctx context.Context, env []string, shared bool) (err error) {
	w, err := c.startWorkers(ctx, env, c.services, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	left := len(servicePairs) * len(c.batches)
	for _, batch := range c.batches {
		for _, p := range servicePairs {
			limit := timeLeft(ctx) / time.Duration(left+1) // one more, so that ending fits in
			left--
			row := pairRow{A: c.services[p[0]], B: c.services[p[1]], Batch: batch, MPS: shared}
			err := w.pair(ctx, &row, p, c.rounds, limit)
			if row.Rounds > 0 {
				keep(c, &c.mu.Pairs, row)
			}
			if !shared && row.Rounds > 0 {
				c.expect([]string{"S8"}, row.Gain <= turnsGain, "%s and %s, batch %d: %.2f times as fast together without MPS", row.A, row.B, batch, row.Gain)
			}
			if shared && row.Rounds >= steadyRounds {
				c.expect([]string{"P20", "F3"}, 100*row.Spread <= wantSpread, "%s and %s, batch %d: spread %.1f %% while MPS is asked every two seconds", row.A, row.B, batch, 100*row.Spread)
			}
			if err != nil {
				return err
			}
			c.rest--
		}
	}
	return nil
}

// pair takes turns: one, the other, both together, so that whatever slows the
// device down slows all three. The row has what was measured also where a run fails.
func (w *workers) pair(ctx context.Context, row *pairRow, p [2]int, most int, limit time.Duration) error {
	a, b := part{service: p[0], batch: row.Batch}, part{service: p[1], batch: row.Batch}
	var aloneA, aloneB, sequential, together []float64
	end := time.Now().Add(limit)
	var failed error
	for n := -warmups; failed == nil && n < most && (n < minRounds || time.Now().Before(end)); n++ {
		began := time.Now()
		var first, second, at time.Duration
		if first, failed = w.run(ctx, a); failed == nil {
			second, failed = w.run(ctx, b)
		}
		both := time.Since(began)
		if failed == nil {
			at, failed = w.run(ctx, a, b)
		}
		if n >= 0 && failed == nil {
			aloneA, aloneB = append(aloneA, milliseconds(first)), append(aloneB, milliseconds(second))
			sequential, together = append(sequential, milliseconds(both)), append(together, milliseconds(at))
		}
	}
	if row.Rounds = len(together); row.Rounds > 0 {
		row.AloneAMS, row.AloneBMS = stats.Median(aloneA), stats.Median(aloneB)
		row.SequentialMS, row.TogetherMS = stats.Median(sequential), stats.Median(together)
		row.Gain, row.Spread = row.SequentialMS/row.TogetherMS, stats.Deviation(together)/stats.Mean(together)
	}
	return failed
}

// alone returns what a batch of a service takes alone, as the pairs had it, 0 if that is
// not known. What was measured last counts.
func (c *check) alone(model string, batch int) float64 {
	for _, r := range slices.Backward(c.mu.Pairs) {
		switch {
		case r.Batch != batch:
		case r.A == model:
			return r.AloneAMS
		case r.B == model:
			return r.AloneBMS
		}
	}
	return 0
}

func milliseconds(d time.Duration) float64 { return float64(d) / 1e6 }

package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/overlapd/overlapd/stats"
)

// Bounds of the rounds of one pair.
const (
	minRounds = 5
	maxRounds = 200
)

// PairRow compares two services that run together with the same two one after
// the other. Times are medians.
type PairRow struct {
	A            string  `json:"a"` // services
	B            string  `json:"b"`
	Batch        int     `json:"batch"`
	MPS          bool    `json:"mps"`
	Rounds       int     `json:"rounds"`
	AloneAMS     float64 `json:"alone_a_ms"`
	AloneBMS     float64 `json:"alone_b_ms"`
	SequentialMS float64 `json:"sequential_ms"` // both, one after the other
	TogetherMS   float64 `json:"together_ms"`
	Gain         float64 `json:"gain"` // sequential / together
}

// measurePairs measures every two of the three services, without MPS and, where
// there is a GPU, with it.
func (c *check) measurePairs(ctx context.Context) error {
	if c.rehearsal() {
		return c.pairsUnder(ctx, nil, false)
	}
	half, cancel := context.WithTimeout(ctx, timeLeft(ctx)/2)
	err := c.pairsUnder(half, c.offEnv(), false)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if merr := c.startMPS(ctx); merr != nil {
		return errors.Join(err, merr)
	}
	env, merr := c.workerEnv()
	if merr == nil {
		merr = c.pairsUnder(ctx, env, true)
	}
	return errors.Join(err, merr)
}

// pairsUnder measures all pairs with workers of this environment.
func (c *check) pairsUnder(ctx context.Context, env []string, shared bool) (err error) {
	w, err := c.startWorkers(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	pairs := pairsOf(len(c.Services))
	left := len(pairs) * len(c.Batches)
	for _, batch := range c.Batches {
		for _, p := range pairs {
			limit := timeLeft(ctx) / time.Duration(left+1) // one more, so that ending fits in
			left--
			row := PairRow{A: c.Services[p[0]].Name, B: c.Services[p[1]].Name, Batch: batch, MPS: shared}
			c.Progress(fmt.Sprintf("  %s and %s, batch %d", row.A, row.B, batch))
			if err := w.pair(ctx, &row, p, limit); err != nil {
				return err
			}
			c.keep(func(r *Report) { r.Pairs = append(r.Pairs, row) })
		}
	}
	return nil
}

// pairsOf returns every two of n.
func pairsOf(n int) (pairs [][2]int) {
	for a := range n {
		for b := a + 1; b < n; b++ {
			pairs = append(pairs, [2]int{a, b})
		}
	}
	return pairs
}

// pair takes turns: one, the other, both together, so that whatever slows the
// device down slows all three.
func (w *workers) pair(ctx context.Context, row *PairRow, p [2]int, limit time.Duration) error {
	a, b := part{service: p[0], batch: row.Batch}, part{service: p[1], batch: row.Batch}
	var alone [2][]float64
	var sequential, together []float64
	end := time.Now().Add(limit)
	for n := -warmups; n < maxRounds && (n < minRounds || time.Now().Before(end)); n++ {
		began := time.Now()
		first, err := w.run(ctx, a)
		if err != nil {
			return err
		}
		second, err := w.run(ctx, b)
		if err != nil {
			return err
		}
		both := time.Since(began)
		at, err := w.run(ctx, a, b)
		if err != nil {
			return err
		}
		if n < 0 {
			continue
		}
		alone[0], alone[1] = append(alone[0], milliseconds(first)), append(alone[1], milliseconds(second))
		sequential, together = append(sequential, milliseconds(both)), append(together, milliseconds(at))
	}
	row.Rounds = len(together)
	row.AloneAMS, row.AloneBMS = stats.Median(alone[0]), stats.Median(alone[1])
	row.SequentialMS, row.TogetherMS = stats.Median(sequential), stats.Median(together)
	row.Gain = row.SequentialMS / row.TogetherMS
	return nil
}

// alone returns what a batch of a service takes alone, as the pairs had it, 0 if
// that is not known. What was measured last counts.
func (c *check) alone(model string, batch int) float64 {
	for _, r := range slices.Backward(c.report.Pairs) {
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

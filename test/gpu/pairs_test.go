package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"time"

	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/stats"
)

// minRounds is how often a pair runs at least.
const minRounds = 5

// repeats is how often the fixed group runs, as in the paper (section 5.4).
const repeats = 100

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
	Gain         float64 `json:"gain"` // sequential / together
}

// turnsGain is how much a pair may gain where services take turns on the GPU.
const turnsGain = 1.1

// measurePairs measures every two of the three services, without MPS and, where
// there is a GPU, with it.
func (c *check) measurePairs(ctx context.Context) error {
	if c.rehearsal() {
		return c.pairsUnder(ctx, nil, false)
	}
	half, cancel := context.WithTimeout(ctx, timeLeft(ctx)/2)
	err := c.pairsUnder(half, mps.OffEnv(c.gpu), false)
	cancel()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	env := c.workerEnv(ctx)
	merr := c.noMPS
	if merr == nil {
		merr = c.pairsUnder(ctx, env, true)
	}
	shared, gain := 0, 0.0 // the largest of those that take turns
	for _, p := range c.mu.Pairs {
		if p.MPS {
			shared++
		} else {
			gain = max(gain, p.Gain)
		}
	}
	c.expect([]string{"S8"}, gain <= turnsGain, "without MPS the best pair is %.2f times as fast together", gain)
	c.expect([]string{"C7"}, shared > 0, "%d pairs of %d ran under MPS", shared, len(c.mu.Pairs))
	return errors.Join(err, merr)
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
	w, err := c.startWorkers(ctx, env, 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	pairs := [][2]int{{0, 1}, {0, 2}, {1, 2}}
	left := len(pairs) * len(c.batches)
	for _, batch := range c.batches {
		for _, p := range pairs {
			limit := timeLeft(ctx) / time.Duration(left+1) // one more, so that ending fits in
			left--
			row := pairRow{A: c.services[p[0]], B: c.services[p[1]], Batch: batch, MPS: shared}
			if err := w.pair(ctx, &row, p, c.rounds, limit); err != nil {
				return err
			}
			keep(c, &c.mu.Pairs, row)
			c.expectInputs(&row)
		}
	}
	return nil
}

// expectInputs compares zeros as inputs, in a worker, with a probe's random ones.
func (c *check) expectInputs(p *pairRow) {
	for _, r := range c.mu.Cuts {
		if !p.MPS && r.Model == p.A && r.Batch == p.Batch && r.Segments == c.cutOf(p.A) {
			c.expect([]string{"C9"}, math.Abs(p.AloneAMS/r.CutMS-1) <= slower, "%s, batch %d: %.3f ms with zeros in a worker, %.3f ms with random inputs in a probe",
				p.A, p.Batch, p.AloneAMS, r.CutMS)
		}
	}
}

// pair takes turns: one, the other, both together, so that whatever slows the
// device down slows all three.
func (w *workers) pair(ctx context.Context, row *pairRow, p [2]int, most int, limit time.Duration) error {
	a, b := part{service: p[0], batch: row.Batch}, part{service: p[1], batch: row.Batch}
	var aloneA, aloneB, sequential, together []float64
	end := time.Now().Add(limit)
	for n := -warmups; n < most && (n < minRounds || time.Now().Before(end)); n++ {
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
		if n >= 0 {
			aloneA, aloneB = append(aloneA, milliseconds(first)), append(aloneB, milliseconds(second))
			sequential, together = append(sequential, milliseconds(both)), append(together, milliseconds(at))
		}
	}
	row.Rounds = len(together)
	row.AloneAMS, row.AloneBMS = stats.Median(aloneA), stats.Median(aloneB)
	row.SequentialMS, row.TogetherMS = stats.Median(sequential), stats.Median(together)
	row.Gain = row.SequentialMS / row.TogetherMS
	return nil
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

// repeatRow is how much one group's latency differs from run to run.
type repeatRow struct {
	Group    string  `json:"group"` // in words
	MPS      bool    `json:"mps"`
	Runs     int     `json:"runs"`
	FirstMS  float64 `json:"first_ms"` // of all runs, those before it being what a worker does to warm up
	MedianMS float64 `json:"median_ms"`
	P99MS    float64 `json:"p99_ms"`
	Spread   float64 `json:"spread"` // standard deviation by mean
}

// repeatGroup runs all of the first service and half of the second together.
func (c *check) repeatGroup(ctx context.Context) (err error) {
	w, err := c.startWorkers(ctx, c.workerEnv(ctx), 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	operators := len(w.infos[1].Operators)
	first, second := part{service: 0, batch: 1}, part{service: 1, batch: 1, end: max(operators/2, 1)}
	r := repeatRow{Group: fmt.Sprintf("%s whole, %s operators 0 to %d of %d", c.services[0], c.services[1], second.end, operators), MPS: c.control != nil}
	var times []float64
	for n := -warmups; n < repeats && err == nil; n++ {
		var took time.Duration
		if took, err = w.run(ctx, first, second); err != nil {
			break
		}
		if n == -warmups {
			r.FirstMS = milliseconds(took)
		}
		if n >= 0 {
			times = append(times, milliseconds(took))
		}
	}
	if r.describe(times); r.Runs > 0 { // what was measured is kept also if the time is up
		keep(c, &c.mu.Repeat, r)
		c.expect([]string{"E23"}, r.FirstMS <= r.P99MS*(1+slower), "first %.3f ms, median %.3f, 99 %% %.3f", r.FirstMS, r.MedianMS, r.P99MS)
		c.expect([]string{"P20", "F3"}, 100*r.Spread <= wantSpread, "spread %.1f %% while MPS is asked every two seconds", 100*r.Spread)
	}
	return err
}

func (r *repeatRow) describe(times []float64) {
	if r.Runs = len(times); r.Runs == 0 {
		return
	}
	slices.Sort(times)
	r.MedianMS, r.P99MS = stats.Median(times), stats.Quantile(times, 0.99)
	r.Spread = stats.Deviation(times) / stats.Mean(times)
}

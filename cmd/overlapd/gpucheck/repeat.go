package gpucheck

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/overlapd/overlapd/stats"
)

// repeats is how often the fixed group runs, as in the paper (section 5.4).
const repeats = 100

// Repeat tells how much one group's latency differs from run to run.
type Repeat struct {
	Group    string  `json:"group"` // in words
	Batch    int     `json:"batch"`
	MPS      bool    `json:"mps"`
	Runs     int     `json:"runs"`
	MedianMS float64 `json:"median_ms"`
	MeanMS   float64 `json:"mean_ms"`
	StdMS    float64 `json:"std_ms"`
	Spread   float64 `json:"spread"` // standard deviation by mean
	P1MS     float64 `json:"p1_ms"`
	P99MS    float64 `json:"p99_ms"`
	FirstMS  float64 `json:"first_ms"` // of all runs, those before it being what a worker does to warm up
}

// repeatGroup runs all of the first service and half of the second together.
func (c *check) repeatGroup(ctx context.Context) (err error) {
	env, err := c.workerEnv()
	if err != nil {
		return err
	}
	w, err := c.startWorkers(ctx, env)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	operators := len(w.infos[1].Operators)
	first, second := part{service: 0, batch: c.Batches[0]}, part{service: 1, batch: c.Batches[0], end: max(operators/2, 1)}
	var times []float64
	var cold float64
	// What was measured is kept also if the time is up.
	defer func() {
		r := spread(times)
		if r.Runs == 0 {
			return
		}
		r.Group = fmt.Sprintf("%s whole, %s operators 0 to %d of %d", c.Services[0].Name, c.Services[1].Name, second.end, operators)
		r.FirstMS, r.Batch, r.MPS = cold, c.Batches[0], c.mps != nil
		c.keep(func(report *Report) { report.Repeat = &r })
	}()
	for n := -warmups; n < repeats; n++ {
		took, err := w.run(ctx, first, second)
		if err != nil {
			return err
		}
		if n == -warmups {
			cold = milliseconds(took)
		}
		if n >= 0 {
			times = append(times, milliseconds(took))
		}
	}
	return nil
}

// spread sorts the times and describes them.
func spread(times []float64) Repeat {
	r := Repeat{Runs: len(times), MedianMS: stats.Median(times), MeanMS: stats.Mean(times), StdMS: stats.Deviation(times)}
	if r.Runs == 0 {
		return r
	}
	r.Spread = r.StdMS / r.MeanMS
	slices.Sort(times)
	r.P1MS, r.P99MS = stats.Quantile(times, 0.01), stats.Quantile(times, 0.99)
	return r
}

package gpucheck

import (
	"context"
	"fmt"
	"os"
	"time"
)

const (
	// trainShare is the part of the step that is kept for training, which takes
	// about 10 ms for each group.
	trainShare = 0.3

	// loadShare is the part of the step that starting workers may take.
	loadShare = 0.1
)

// Profile tells what was measured and how well groups are predicted from it.
type Profile struct {
	MeasureSeconds float64 `json:"measure_seconds"`
	Measured       int     `json:"measured"` // groups and solo runs
	DriftPercent   float64 `json:"drift_percent"`
	Rows           int     `json:"rows"` // groups that the predictor was fitted to, 0 if there is none
	TrainSeconds   float64 `json:"train_seconds"`
	MAPE           float64 `json:"mape_test"` // percent, on groups that were kept aside
}

// profile measures groups as the daemon does and fits a predictor, which stays in
// the state folder for the daemons of the next step.
func (c *check) profile(ctx context.Context) error {
	if c.alone(c.Services[0].Name, 1) == 0 {
		return fmt.Errorf("%w: what services take alone, with a batch of 1", ErrNothing)
	}
	dir, err := os.MkdirTemp("", "overlapd-gpu-check-")
	if err != nil {
		return err
	}
	c.state = dir
	c.later(func() error { return os.RemoveAll(dir) })
	config, err := c.writeConfig(dir)
	if err != nil {
		return err
	}
	left := timeLeft(ctx)
	limit := min(time.Duration(float64(left)*(1-trainShare-loadShare)), c.Profile)
	var measured struct {
		Measured int     `json:"measured"`
		Seconds  float64 `json:"seconds"`
		Drift    float64 `json:"drift_percent"`
	}
	if err := c.ask(ctx, &measured, "profile", "--config", config, "--time", limit.String(), "--json"); err != nil {
		return err
	}
	p := Profile{MeasureSeconds: measured.Seconds, Measured: measured.Measured, DriftPercent: measured.Drift}
	untrained := p
	c.keep(func(r *Report) { r.Profile = &untrained })
	var trained struct {
		Rows    int     `json:"rows"`
		Seconds float64 `json:"seconds"`
		MAPE    float64 `json:"mape_test"`
	}
	c.Progress(fmt.Sprintf("  %d measurements in %.0f s; training", p.Measured, p.MeasureSeconds))
	if err := c.ask(ctx, &trained, "train", "--config", config, "--seed", fmt.Sprint(c.Seed), "--json"); err != nil {
		return err
	}
	p.Rows, p.TrainSeconds, p.MAPE = trained.Rows, trained.Seconds, trained.MAPE
	c.keep(func(r *Report) { r.Profile = &p })
	return nil
}

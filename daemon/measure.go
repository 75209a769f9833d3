package daemon

import (
	"context"
	"errors"
	"time"

	"github.com/overlapd/overlapd/training"
)

// measureInterval is how often Measure reports.
const measureInterval = 200 * time.Millisecond

// MeasureReport is how far Measure is.
type MeasureReport struct {
	Ready    int // services that have loaded their models
	Services int
	GivenUp  []string // services whose model does not load
	Progress training.Progress
	Drift    training.Drift
	Skips    []training.Skip
	Over     bool   // nothing is left to measure, or no time
	Reason   string // why it is over
}

// Measure measures operator groups instead of serving, until there is nothing
// left to measure, the limit is spent, or ctx ends. What was measured is in
// the state file, and the next time goes on from there. The daemon must have
// been made with the option Offline. It is closed then.
func (d *Daemon) Measure(ctx context.Context, limit time.Duration, report func(MeasureReport)) (last MeasureReport, err error) {
	i := d.instances[0]
	i.backend.loop.learner.learning.MeasureOnly(limit)
	if err := i.start(); err != nil {
		return last, errors.Join(err, d.close())
	}
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for ctx.Err() == nil && !last.Over {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		i.backend.ask(func(l *loop) { last = l.learner.report() })
		report(last)
	}
	i.backend.draining.Store(true)
	end, cancel := context.WithTimeout(context.Background(), d.config.DrainTimeout)
	defer cancel()
	_ = i.backend.stopMeasuring(end) // whatever is left then, closing tells
	i.saveProfiles()
	return last, d.close()
}

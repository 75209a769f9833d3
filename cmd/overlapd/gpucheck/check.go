package gpucheck

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/overlapd/overlapd/cuda"
)

const (
	// saveEvery is how often the report is written while a step runs: a machine
	// that goes away takes no more than that.
	saveEvery = 5 * time.Second

	// closeGrace is how long ending what steps left open may take in all: MPS may
	// take five seconds to be asked and five to be killed.
	closeGrace = 12 * time.Second
)

// check is one run of all steps. The report belongs to the step that runs, which
// changes it through keep only: a step that hangs may come back at any time.
type check struct {
	Options
	report   *Report
	state    string                     // folder of what was profiled, "" until then
	nvml     func() (*cuda.Host, error) // nil for the host's
	patience time.Duration              // with a client, 0 for clientPatience
	hung     time.Duration              // 0 for hungGrace
	mps      *shared                    // nil until services run together, and where there is none

	mu struct {
		sync.Mutex
		saved time.Time
		close []func() error // what a step left open for the next ones, in order
	}
}

// Run checks a device. The error tells of options that make no sense and of a
// report that cannot be written; what goes wrong in a step is in the report. It
// returns at the latest when the budget, hungGrace and closeGrace are over, also
// if a step hangs.
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
	err = errors.Join(err, c.closeAll(closeGrace))
	c.mu.Lock()
	defer c.mu.Unlock()
	r := *c.report // a step that hangs keeps the other one
	return &r, err
}

// keep changes the report, and now and then saves it.
func (c *check) keep(change func(*Report)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c.report)
	if c.Out != "" && time.Since(c.mu.saved) > saveEvery {
		c.mu.saved = time.Now()
		c.report.judge()
		_ = c.report.save(c.Out) // the end of the step tells of a folder that cannot be written
	}
}

// ended notes how a step ended, and saves.
func (c *check) ended(s StepResult, began time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.saved = time.Now()
	c.report.Steps = append(c.report.Steps, s)
	c.report.Seconds = time.Since(began).Seconds()
	c.report.judge()
	return c.report.save(c.Out)
}

// later has something closed when all steps are through, what came last first.
func (c *check) later(f ...func() error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.close = append(c.mu.close, f...)
}

// closeAll closes what steps left open, as far as it can be within a limit.
func (c *check) closeAll(limit time.Duration) error {
	c.mu.Lock()
	list := c.mu.close
	c.mu.close = nil
	c.mu.Unlock()
	closed := make(chan error, 1)
	go func() {
		var errs []error
		for _, f := range slices.Backward(list) {
			errs = append(errs, f())
		}
		closed <- errors.Join(errs...)
	}()
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case err := <-closed:
		return err
	case <-late.C:
		return fmt.Errorf("%w: what the steps left open was not closed within %v; look for nvidia-cuda-mps-server and end it", ErrDevice, limit)
	}
}

// hungAfter is how long a step may take to end when told.
func (c *check) hungAfter() time.Duration { return cmp.Or(c.hung, hungGrace) }

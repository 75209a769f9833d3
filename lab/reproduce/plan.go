package reproduce

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/overlapd/overlapd/executor/emulated/device"
	"github.com/overlapd/overlapd/lab/sim"
)

// job is a piece of work that is independent of others and fills a place of its own. So it does not
// matter when it runs, and on which lane.
type job struct {
	// stage is the name shown with the progress.
	stage string

	// work is the expected duration in seconds of one core, roughly.
	work float64

	// do does the work on a lane.
	do func(context.Context, *lane) error
}

// plan holds the jobs of some figures.
type plan struct {
	jobs []job
}

// add adds a job.
func (p *plan) add(stage string, work float64, do func(context.Context, *lane) error) {
	p.jobs = append(p.jobs, job{stage, work, do})
}

// work returns the expected work of all jobs.
func (p *plan) work() (sum float64) {
	for i := range p.jobs {
		sum += p.jobs[i].work
	}
	return sum
}

// run does all jobs, as many at a time as there are cores. It stops at the first error and returns
// it.
func (p *plan) run(ctx context.Context, lanes func() *lane, t *tally) error {
	// The first error cancels the jobs of the other lanes and is the cause that run returns.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// All jobs are queued before the first lane starts, so the channel never blocks.
	jobs := make(chan *job, len(p.jobs))
	for i := range p.jobs {
		jobs <- &p.jobs[i]
	}
	close(jobs)
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(p.jobs)) {
		wg.Go(func() {
			l := lanes()
			for j := range jobs {
				if ctx.Err() != nil {
					return
				}
				if err := j.do(ctx, l); err != nil {
					cancel(err)
					return
				}
				t.add(j)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

// lane runs one job after another. It has its own devices, because a device serves one run at a
// time.
type lane struct {
	// devices are made when first needed.
	devices map[divided]sim.Device
}

// divided is the device of a stock in a number of equal parts, 0 and 1 for a whole.
type divided struct {
	*stock
	units int
}

// newLane returns a lane without devices.
func newLane() *lane { return &lane{map[divided]sim.Device{}} }

// device returns the lane's own device of a stock.
func (l *lane) device(s *stock) (sim.Device, error) { return l.divided(divided{s, 1}) }

// divided returns that device in parts.
func (l *lane) divided(of divided) (sim.Device, error) {
	if d := l.devices[of]; d != nil {
		return d, nil
	}
	p := *of.profile
	p.Units = of.units
	d, err := device.NewModel(&p)
	if err != nil {
		return nil, err
	}
	l.devices[of] = d
	return d, nil
}

// tally adds up the work done by all lanes and reports the progress. A job counts as its expected
// work, whatever it took.
type tally struct {
	// show receives the stage, the fraction done, and the estimated remaining time.
	show func(stage string, done float64, left time.Duration)

	// total is the work of all jobs.
	total float64
	began time.Time

	mu struct {
		sync.Mutex

		// done is the work of the jobs that have ended.
		done float64
	}
}

// newTally returns a tally for a total amount of work. show may be nil.
func newTally(show func(stage string, done float64, left time.Duration), total float64) *tally {
	return &tally{show: show, total: total, began: time.Now()}
}

// add counts a job and reports the progress.
func (t *tally) add(j *job) {
	if t.show == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.done += j.work
	// Rounding may bring the sum slightly above the total.
	done := min(t.mu.done/t.total, 1)
	t.show(j.stage, done, time.Duration(float64(time.Since(t.began))*(1-done)/done))
}

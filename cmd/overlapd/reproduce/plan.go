package reproduce

import (
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/overlapd/overlapd/device"
	"github.com/overlapd/overlapd/sim"
)

// job is work that depends on no other and fills a place of its own, so that
// it does not matter who does it, and when.
type job struct {
	stage string
	work  float64 // expected, in seconds or so of one core
	do    func(context.Context, *lane) error
}

// plan is the jobs of some figures.
type plan struct {
	jobs []job
}

func (p *plan) add(stage string, work float64, do func(context.Context, *lane) error) {
	p.jobs = append(p.jobs, job{stage, work, do})
}

func (p *plan) work() (sum float64) {
	for i := range p.jobs {
		sum += p.jobs[i].work
	}
	return sum
}

// run does all jobs, as many at a time as there are cores. It ends with the
// first error.
func (p *plan) run(ctx context.Context, lanes func() *lane, t *tally) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
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

// lane does one job after another. Devices belong to a lane, since one serves
// one run at a time.
type lane struct {
	devices map[*stock]sim.Device
}

func newLane() *lane { return &lane{map[*stock]sim.Device{}} }

// device returns the lane's own device of a stock.
func (l *lane) device(s *stock) (sim.Device, error) {
	if d := l.devices[s]; d != nil {
		return d, nil
	}
	d, err := device.NewModel(s.profile)
	if err != nil {
		return nil, err
	}
	l.devices[s] = d
	return d, nil
}

// tally adds up work that is done, whoever does it, and shows which part of the
// total that is. Work that turned out smaller or larger counts as it was
// expected.
type tally struct {
	show  func(stage string, done float64, left time.Duration)
	total float64
	began time.Time

	mu struct {
		sync.Mutex
		done float64
	}
}

func newTally(show func(stage string, done float64, left time.Duration), total float64) *tally {
	return &tally{show: show, total: total, began: time.Now()}
}

func (t *tally) add(j *job) {
	if t.show == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.done += j.work
	done := min(t.mu.done/t.total, 1)
	t.show(j.stage, done, time.Duration(float64(time.Since(t.began))*(1-done)/done))
}

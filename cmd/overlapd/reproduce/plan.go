package reproduce

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
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
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), max(len(p.jobs), 1)) {
		wg.Go(func() {
			l := lanes()
			for ctx.Err() == nil {
				i := int(next.Add(1)) - 1
				if i >= len(p.jobs) {
					return
				}
				j := &p.jobs[i]
				if err := j.do(ctx, l); err != nil {
					cancel(err)
					return
				}
				t.add(j.stage, j.work)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

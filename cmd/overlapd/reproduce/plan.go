package reproduce

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
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

// tally adds up work that is done, whoever does it.
type tally struct {
	show  func(stage string, done float64, left time.Duration)
	began time.Time

	mu struct {
		sync.Mutex
		stage       string
		done, total float64
	}
}

func newTally(show func(stage string, done float64, left time.Duration)) *tally {
	return &tally{show: show, began: time.Now()}
}

// expect adds to the work that there is, in seconds or so of one core.
func (t *tally) expect(work float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.total += work
}

// add counts work that is done. Work of a stage that turned out smaller or
// larger counts as it was expected.
func (t *tally) add(stage string, work float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.stage, t.mu.done = stage, t.mu.done+work
	if t.show == nil || t.mu.total == 0 {
		return
	}
	done := min(t.mu.done/t.mu.total, 1)
	var left time.Duration
	if done > 0 {
		left = time.Duration(float64(time.Since(t.began)) * (1 - done) / done)
	}
	t.show(stage, done, left)
}

package reproduce

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPlanDoesEveryJobOnce, on no more lanes than there are cores, and never two
// jobs of one lane at a time.
func TestPlanDoesEveryJobOnce(t *testing.T) {
	const jobs = 200
	p := &plan{}
	var done [jobs]atomic.Int64
	var mu sync.Mutex
	busy, lanes := map[*lane]bool{}, 0
	set := func(l *lane, to bool) {
		mu.Lock()
		defer mu.Unlock()
		if busy[l] == to {
			t.Errorf("a lane has two jobs at a time")
		}
		busy[l] = to
	}
	for i := range jobs {
		p.add("x", 0.5, func(_ context.Context, l *lane) error {
			set(l, true)
			defer set(l, false)
			done[i].Add(1)
			return nil
		})
	}
	if p.work() != jobs/2 {
		t.Errorf("%v of work, want %d", p.work(), jobs/2)
	}
	last := 0.0
	told := newTally(func(_ string, done float64, _ time.Duration) { last = done }, p.work())
	err := p.run(t.Context(), func() *lane {
		mu.Lock()
		defer mu.Unlock()
		lanes++
		l := newLane()
		busy[l] = false
		return l
	}, told)
	if err != nil || last != 1 {
		t.Errorf("%v, ended at %v", err, last)
	}
	for i := range done {
		if n := done[i].Load(); n != 1 {
			t.Errorf("job %d was done %d times", i, n)
		}
	}
	if lanes > runtime.GOMAXPROCS(0) {
		t.Errorf("%d lanes on %d cores", lanes, runtime.GOMAXPROCS(0))
	}
}

// TestPlanIsCancelled cancels a plan before it begins, so that no job runs, and halfway, so that
// jobs are left and the running ones are notified.
func TestPlanIsCancelled(t *testing.T) {
	var done atomic.Int64
	p := &plan{}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 100 {
		p.add("x", 1, func(inner context.Context, _ *lane) error {
			switch n := done.Add(1); {
			case n == 3:
				cancel()
				fallthrough
			case n > 3: // the lane of the third may be late to cancel
				<-inner.Done()
			}
			return nil
		})
	}
	if err := p.run(ctx, newLane, newTally(nil, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled in the middle: %v", err)
	}
	if n := done.Load(); n < 3 || n > 3+int64(runtime.GOMAXPROCS(0)) {
		t.Errorf("%d jobs were begun, and the third cancelled", n)
	}
	done.Store(10)
	if err := p.run(ctx, newLane, newTally(nil, 1)); !errors.Is(err, context.Canceled) || done.Load() != 10 {
		t.Errorf("cancelled before: %v, %d jobs done", err, done.Load()-10)
	}
}

// TestPlanTellsTheFault and not that the others were cancelled for it.
func TestPlanTellsTheFault(t *testing.T) {
	broken := errors.New("broken")
	p := &plan{}
	for i := range 8 {
		p.add("x", 1, func(ctx context.Context, _ *lane) error {
			if i == 0 {
				return broken
			}
			<-ctx.Done()
			return ctx.Err()
		})
	}
	if err := p.run(t.Context(), newLane, newTally(nil, 1)); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
}

func TestTally(t *testing.T) {
	type progress struct {
		stage string
		done  float64
		left  time.Duration
	}
	var seen []progress
	c := newTally(func(stage string, done float64, left time.Duration) { seen = append(seen, progress{stage, done, left}) }, 100)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 25 {
				c.add(&job{stage: "x", work: 1})
			}
		})
	}
	wg.Wait()
	c.add(&job{stage: "more than expected", work: 50})
	if len(seen) != 101 {
		t.Fatalf("shown %d times", len(seen))
	}
	for i, p := range seen[:100] {
		if want := float64(i+1) / 100; p.done != want || p.stage != "x" {
			t.Errorf("%d: %+v", i, p)
		}
	}
	if last := seen[100]; last.done != 1 || last.left != 0 || last.stage != "more than expected" {
		t.Errorf("%+v", last)
	}
}

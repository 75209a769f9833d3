package reproduce

import (
	"sync"
	"time"
)

// Progress is how far a reproduction has come.
type Progress struct {
	Stage string
	Done  float64 // part of the whole work, 0 to 1
	Left  time.Duration
}

// tally adds up work that is done, whoever does it.
type tally struct {
	show  func(Progress)
	began time.Time

	mu struct {
		sync.Mutex
		stage       string
		done, total float64
	}
}

func newTally(show func(Progress)) *tally { return &tally{show: show, began: time.Now()} }

// expect adds to the work that there is, in seconds or so of one core.
func (t *tally) expect(work float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.total += work
}

// add tells that work is done. Work of a stage that turned out smaller or
// larger counts as it was expected.
func (t *tally) add(stage string, work float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.stage, t.mu.done = stage, t.mu.done+work
	if t.show == nil || t.mu.total == 0 {
		return
	}
	done := min(t.mu.done/t.mu.total, 1)
	p := Progress{Stage: stage, Done: done}
	if done > 0 {
		p.Left = time.Duration(float64(time.Since(t.began)) * (1 - done) / done)
	}
	t.show(p)
}

package worker

import (
	"runtime"
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// slowEngine takes a time for each run.
type slowEngine struct {
	Engine
	takes time.Duration
}

func (e slowEngine) Run(_ models.BatchID, _, end, _ int, _ *uint32, _ OutputFunc) (Ran, error) {
	time.Sleep(e.takes)
	return Ran{Reached: end}, nil
}

// The last run decides how many Ps there are, and a long one does not decide for good.
func TestPsFollowTheLastRun(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	const units = 4
	p := newPaced(slowEngine{takes: longRun}, units)
	check := func(when string, want int) {
		t.Helper()
		if n := runtime.GOMAXPROCS(0); n != want {
			t.Errorf("%s: %d Ps, want %d", when, n, want)
		}
	}
	check("at first", units+1)
	if ran, err := p.Run(1, 0, 3, 0, nil, nil); err != nil || ran.Reached != 3 {
		t.Errorf("%+v, %v", ran, err)
	}
	check("after a long run", 1)
	p.ran(longRun)
	check("after another", 1)
	p.ran(longRun - 1)
	check("after a short one", units+1)
}

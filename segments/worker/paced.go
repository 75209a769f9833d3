package worker

import (
	"runtime"
	"sync"
	"time"

	"github.com/overlapd/overlapd/models"
)

// longRun is how long a run takes that is long: until then, Go's monitor leaves a call into C its P
// while others are idle.
const longRun = 10 * time.Millisecond

// paced is an engine that several goroutines use. It sets Go's number of Ps by how long the last run
// took. For short runs each goroutine has one, and another one reads. While a P is left with a call into C, the
// monitor wakes up about sixty times to see whether the call has returned, each time on a core on which
// a run computes. So for long runs there is one P, which the monitor takes from the call at once, and
// then sleeps: 30 ms of resnet50 on two cores take 9 % less. Runs of 4 ms would take 5 % more.
type paced struct {
	Engine
	units int

	mu         sync.Mutex
	processors int
}

func newPaced(e Engine, units int) *paced {
	p := &paced{Engine: e, units: units}
	p.ran(0)
	return p
}

// Run runs operators, see Engine.
func (p *paced) Run(id models.BatchID, start, end, share int, stop *uint32, out OutputFunc) (Ran, error) {
	begin := time.Now()
	defer func() { p.ran(time.Since(begin)) }()
	return p.Engine.Run(id, start, end, share, stop, out)
}

// ran sets the number of Ps after a run. That stops all goroutines for a moment, so it is only done where
// the number changes.
func (p *paced) ran(took time.Duration) {
	processors := 1
	if took < longRun {
		processors += p.units
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if processors != p.processors {
		p.processors = processors
		runtime.GOMAXPROCS(processors)
	}
}

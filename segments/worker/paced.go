package worker

import (
	"runtime"
	"sync"
	"time"

	"github.com/overlapd/overlapd/models"
)

// longRun is the duration from which on a run is long. It is also after how long Go's monitor thread takes
// the P away from a call into C while other Ps are idle.
const longRun = 10 * time.Millisecond

// paced is an engine that several goroutines use. It sets the number of Go's Ps after each run, by how long
// the run took. After a short one each goroutine has a P, and so has the one that reads. But while a call
// into C keeps its P, the monitor wakes up about sixty times to see whether the call has returned, on a core
// on which a run computes. With a single P it takes that away at once and then sleeps. On two cores
// a run of resnet50, of 30 ms, is 9 % shorter with one P, and one of 4 ms 5 % longer ("overlapd
// bench serve --connections 1" and 2, 2026-11-28).
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

// ran sets the number of Ps after a run, if it changes: setting it stops all goroutines for a moment.
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

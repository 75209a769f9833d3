package loop

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/segments/wire"
)

// breadth is how many processors the Go runtime has for the goroutines of this process.
// Most of what a query costs a daemon that has several is waking threads: a goroutine that
// hands a query on wakes an idle one, which finds it taken. With one there is none to wake,
// and calls that arrive together reach the scheduler together. So the daemon has one while
// that suffices, one more whenever it does not, and all of them for work that would keep
// queries waiting: for such the runtime shares a processor out in slices of 10 ms.
type breadth struct {
	most  int // 0 leaves the runtime as it is
	width atomic.Int32
	holds atomic.Int32 // who needs all processors
	mu    sync.Mutex   // held while the runtime changes

	// These are the scheduler goroutine's.
	at      time.Duration // when it looked last, and what there was then
	used    time.Duration
	arrived uint64
	trial   *gauge        // what the last interval was like at the width before this one, nil if that is decided
	before  int           // that width
	wider   verdict       // on one processor more
	fewer   verdict       // on one less
	wide    time.Duration // all processors until then
}

// verdict is that another width was in vain. It expires, since a stall of the host may have
// been taken for the width, and the load may become another.
type verdict struct {
	under gauge // what was found
	at    time.Duration
	pause time.Duration // before the next trial under that load
}

// stands reports whether there is to be no further trial yet.
func (v *verdict) stands(now time.Duration, g gauge) bool {
	return now < v.at+v.pause && (now < v.at+trialPause || g.like(v.under))
}

// found sets what was found, and pauses twice as long if it is the same as before.
func (v *verdict) found(now time.Duration, under gauge, most time.Duration) {
	if !under.like(v.under) {
		v.pause = 0
	}
	*v = verdict{under, now, min(max(2*v.pause, trialPause), most)}
}

const (
	// breadthPause is the shortest time between two looks at what the process uses.
	breadthPause = 100 * time.Millisecond

	// scarce is from which part of its processors on, in use, a process is short of them. It
	// has one too many below that part of the others.
	scarce = 0.9

	// worthwhile is how much more must come of one more processor, or at most be paid for it.
	worthwhile = 1.1

	// After a trial in vain there is none for trialPause, twice as long each further time.
	// Trying fewer processors may hold queries up, and becomes rarer still.
	trialPause, trialPauseMax, fewerPauseMax = time.Second, time.Minute, 15 * time.Minute

	// alike is by which factor the processor time of a query may change under the same load.
	alike = 1.5

	// largeBytes is from what size on the tensors of a query are copied for so long (1 ms or
	// more, during which nothing else runs on that processor) that all processors are used
	// for largeTime. A byte of text, or one that is written as text, takes textCost times as long.
	largeBytes, largeTime = 8 << 20, time.Minute
	textCost              = 64
)

// gauge is what a process did in an interval: the processors that it used, and queries that
// came in a second.
type gauge struct{ used, rate float64 }

// worth reports whether a process that did this had a processor more than one that did o for
// good reason: more queries came of it, or they did not cost more.
func (g gauge) worth(o gauge) bool {
	return g.rate >= worthwhile*o.rate || g.used*o.rate <= worthwhile*o.used*g.rate
}

// like reports whether a query took about the same time.
func (g gauge) like(o gauge) bool {
	return g.used*o.rate <= alike*o.used*g.rate && o.used*g.rate <= alike*g.used*o.rate
}

// look widens or narrows the process by what it did since the last look. It is called
// whenever the loop rests, and returns soon.
func (b *breadth) look(now time.Duration, arrived uint64) {
	passed := now - b.at
	if b.most == 0 || passed < breadthPause {
		return
	}
	used := wire.Worked()
	g := gauge{float64(used-b.used) / float64(passed), float64(arrived-b.arrived) / passed.Seconds()}
	b.at, b.used, b.arrived = now, used, arrived
	b.set(b.next(now, g))
}

// next returns how many processors there are to be after an interval like g. One more is
// kept if it is worth that, and one less if it was not.
func (b *breadth) next(now time.Duration, g gauge) int {
	width, trial := int(b.width.Load()), b.trial
	b.trial = nil
	switch {
	case now < b.wide:
		return b.most
	case trial != nil && b.before < width:
		if !g.worth(*trial) {
			b.wider.found(now, *trial, trialPauseMax)
			return b.before
		}
		b.wider.pause = 0
		b.fewer.found(now, g, fewerPauseMax)
	case trial != nil:
		if trial.worth(g) {
			b.fewer.found(now, *trial, fewerPauseMax)
			return b.before
		}
		b.fewer.pause = 0
		b.wider.found(now, g, trialPauseMax)
	}
	switch short := g.used > scarce*float64(width); {
	case short && width < b.most && !b.wider.stands(now, g):
		b.trial, b.before = &g, width
		return width + 1
	case width > 1 && g.used < scarce*float64(width-1):
		return width - 1
	case width > 1 && !b.fewer.stands(now, g):
		b.trial, b.before = &g, width
		return width - 1
	}
	return width
}

// large has all processors used for a while if the inputs of a call are large, or an output
// of so many bytes is. Who sends text is answered in text, as a rule.
func (b *breadth) large(now time.Duration, c *query.Call, output int) {
	if c.TextBytes > 0 {
		output *= textCost
	}
	if b.most > 0 && max(len(c.Memory.Bytes), textCost*c.TextBytes, output) >= largeBytes {
		b.wide = now + largeTime
		b.set(b.most)
	}
}

// hold has all processors used until release is called: for work that computes for more
// than a moment, or waits for a disk. The scheduler goroutine does not call it.
func (b *breadth) hold() (release func()) {
	b.holds.Add(1)
	b.change()
	return func() {
		b.holds.Add(-1)
		b.change()
	}
}

// set has so many processors used. The runtime stops all goroutines for a moment, and may wait
// for the end of a collection of garbage before, which the scheduler goroutine does not.
func (b *breadth) set(width int) {
	if int(b.width.Swap(int32(width))) != width {
		go b.change()
	}
}

func (b *breadth) change() {
	b.mu.Lock()
	defer b.mu.Unlock()
	width := int(b.width.Load())
	if b.holds.Load() > 0 {
		width = b.most
	}
	if b.most > 0 && width != runtime.GOMAXPROCS(0) {
		runtime.GOMAXPROCS(width)
	}
}

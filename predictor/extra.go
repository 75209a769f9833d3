package predictor

import (
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

const (
	// extraRuns is how many of the latest runs with and without something tell what it
	// costs, extraEnough how many of each there must be.
	extraRuns   = 15
	extraEnough = 4

	// leastExtra is what part of a run something must cost to be learned. Less is within
	// what runs differ by, and left to the margin. Where it happens all the time, and what
	// runs without it take is not known lately, it must cost as much as a run: what is
	// learned then makes it rare, and is put right if it was the device that became slower.
	leastExtra, guessedExtra = 0.25, 1.0

	// mostExtra bounds what is learned: whoever waits for longer has other faults.
	mostExtra = float64(time.Second)

	// leastIdle is the shortest pause that may matter, idleSteps how many tenfold ones are
	// told apart from there.
	leastIdle = 10 * time.Millisecond
	idleSteps = 4
)

// extras is what a run takes besides what its operators do: for each service the cost of a
// batch size that is not that of its last run, and for pauses of a device their cost.
//
// What a run took above its prediction, at the speed that the device has lately, is noted
// apart for runs in which something happened and for those in which it did not. The
// difference of the medians is what it costs, so that a prediction that is off, or a device
// that becomes slower, costs nothing. Where several things happened at once, each has an
// equal part of what their costs so far do not explain.
type extras struct {
	ignored bool
	resized [MaxServices]extra
	idle    [idleSteps]extra
}

// extra is what one thing costs.
type extra struct {
	with, without runsAbove
	nanos         float64
}

// runsAbove is a ring of how much the latest runs took above their predictions, and of
// what they were predicted to take, in nanoseconds.
type runsAbove struct {
	above, base [extraRuns]float64
	count, next int
}

func (r *runsAbove) add(above, base float64) {
	r.above[r.next], r.base[r.next] = above, base
	r.next = (r.next + 1) % extraRuns
	r.count = min(r.count+1, extraRuns)
}

// middle returns the median of the latest of a ring.
func (r *runsAbove) middle(of [extraRuns]float64) float64 {
	slices.Sort(of[:r.count])
	return of[(r.count-1)/2]
}

// learn sets what it costs by the latest runs, and reports whether it was thought to cost
// nothing before.
func (x *extra) learn() (found bool) {
	if x.with.count < extraEnough {
		return false
	}
	was := x.nanos
	least, usual := guessedExtra, 0.0
	if x.without.count >= extraEnough {
		least, usual = leastExtra, x.without.middle(x.without.above)
	}
	x.nanos = min(x.with.middle(x.with.above)-usual, mostExtra)
	if x.nanos < least*x.with.middle(x.with.base) {
		x.nanos = 0
	}
	return was == 0 && x.nanos > 0
}

// pause returns what a pause of some length costs, nil of one that does not matter.
func (x *extras) pause(idle time.Duration) *extra {
	if idle < leastIdle {
		return nil
	}
	step := 0
	for idle /= 10; idle >= leastIdle && step < idleSteps-1; idle /= 10 {
		step++
	}
	return &x.idle[step]
}

// of returns what a group is expected to cost for sizes that change, and for a pause.
func (x *extras) of(g models.Group) (resizing, waking float64) {
	for i := range g.Spans {
		if s := &g.Spans[i]; s.Resized {
			resizing += x.resized[s.Service].nanos
		}
	}
	if p := x.pause(g.Idle); p != nil {
		waking = p.nanos
	}
	return resizing, waking
}

// observe takes in a run that was predicted to take base nanoseconds without any of this.
// It reports whether something is found to cost something that was not known to.
func (x *extras) observe(g models.Group, base, took float64) (found bool) {
	if x.ignored {
		return false
	}
	happened, paused := 0, x.pause(g.Idle)
	for i := range g.Spans {
		if g.Spans[i].Resized {
			happened++
		}
	}
	if paused != nil {
		happened++
	}
	resizing, waking := x.of(g)
	part := (took - base - resizing - waking) / float64(max(happened, 1))
	note := func(e *extra, happens bool) {
		switch {
		case happens:
			e.with.add(e.nanos+part, base)
		case happened == 0:
			e.without.add(part, base)
		default:
			return // that nothing was paid for the one says little where the other was
		}
		found = e.learn() || found
	}
	for i := range g.Spans {
		note(&x.resized[g.Spans[i].Service], g.Spans[i].Resized)
	}
	for i := range x.idle {
		note(&x.idle[i], &x.idle[i] == paused)
	}
	return found
}

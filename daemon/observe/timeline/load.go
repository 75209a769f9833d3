package timeline

import (
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/overlap"
)

const (
	// loadWindow is over how long signals for scaling are smoothed, in steps as those of a
	// history: as long as it takes to start a worker with its model, so that what is
	// demanded does not change before the answer to the last demand can be seen.
	loadWindow = time.Minute

	// loadSteps is how many steps a window has, with the one that is not over.
	loadSteps = int(loadWindow/historyStep) + 1

	// loadEvery is how often a load is published.
	loadEvery = time.Second

	// badLimit is the bad rate above which more devices are demanded, and mostBad the one
	// above which no more still are: the demand would be without limit.
	badLimit, mostBad = 0.01, 0.9

	// leftSteps is into how many parts the time that a query is allowed is divided.
	leftSteps = 20
)

// busy is what a device did in a step.
type busy struct {
	took   time.Duration
	rounds int
}

// demand is what a service asked of the devices in a step: what its spans took, and saved by
// running beside others, and of its queries that were good or bad how many there were, how many were bad, and how many
// were answered with so much left of their time.
type demand struct {
	took       time.Duration
	saved      time.Duration
	total, bad uint32
	left       [leftSteps]uint32
}

// count counts a query of which this part of its time was left; none of a bad one.
func (d *demand) count(left float64, bad bool, n uint32) {
	d.total += n
	if bad {
		d.bad += n
		left = 0
	}
	d.left[min(max(int(left*leftSteps), 0), leftSteps-1)] += n
}

// load is what the demand for devices is made of, besides the demands of the lanes.
type load struct {
	names   []string // of the devices
	devices []steps[busy]
}

// overloaded reports whether a reason for which a query was refused, or dropped, is that
// there is too much to do.
func overloaded(reason overlap.Reason) bool {
	return reason == overlap.ReasonQueueFull || reason == overlap.ReasonDeadlinePassed || reason == overlap.ReasonCannotFinish
}

// turnedAway counts queries that did not come to the scheduler because there was too much
// to do.
func (d *demand) turnedAway(counts *[len(query.TurnedAwayFor)]uint64) {
	for i, n := range counts {
		if reason := query.TurnedAwayFor[i]; reason == query.ReasonNoMemory || reason == query.ReasonQueueFull {
			d.count(0, true, uint32(n))
		}
	}
}

// loadOf sums up what a device did from a step on, which is so long ago.
func loadOf(did *steps[busy], name string, first int64, span time.Duration) status.DeviceLoad {
	var sum busy
	did.each(first, loadSteps, func(_ int, b *busy) { sum.took, sum.rounds = sum.took+b.took, sum.rounds+b.rounds })
	idle := max(span-sum.took, 0)
	d := status.DeviceLoad{Name: name, BusySeconds: sum.took.Seconds(), Idle: float64(idle) / float64(max(span, 1))}
	if sum.rounds > 0 {
		d.IdleBeforeRoundMS = idle.Seconds() * 1e3 / float64(sum.rounds)
	}
	return d
}

func (d *demand) badRate() float64 { return float64(d.bad) / float64(max(d.total, 1)) }

// headroom returns the part of their time that 99 of 100 queries had left.
func (d *demand) headroom() float64 {
	least := int64(d.total+99) / 100 // the rank of the query that decides, from below
	for i, n := range d.left {
		if least -= int64(n); least <= 0 && d.total > 0 {
			return float64(i) / leftSteps
		}
	}
	return 1
}

package timeline

import (
	"time"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/overlap"
)

const (
	// loadWindow is the interval over which signals for autoscaling are averaged. It is
	// about the time that a new worker needs to load its model, so that the demand does not
	// change before the effect of the last change is visible.
	loadWindow = time.Minute

	// loadSteps is the number of history steps in a window, including the current one.
	loadSteps = int(loadWindow/historyStep) + 1

	// loadEvery is how often the load is published.
	loadEvery = time.Second

	// badLimit is the bad rate above which more devices are demanded. mostBad limits the
	// rate in that calculation, since the demand would grow without limit as the rate
	// approaches 1.
	badLimit, mostBad = 0.01, 0.9

	// leftSteps is the resolution at which the remaining time of queries is counted: 5 %
	// each.
	leftSteps = 20
)

// busy is what a device did in one step.
type busy struct {
	took   time.Duration
	rounds int
}

// demand is what a service demanded in one step: the device time of its spans, the time
// saved by overlapping, the number of good and bad queries, the number of bad ones, and a
// histogram of the fraction of their time that was left.
type demand struct {
	took       time.Duration
	saved      time.Duration
	total, bad uint32
	left       [leftSteps]uint32
}

// count counts n queries with this fraction of their time left. A bad query has nothing
// left.
func (d *demand) count(left float64, bad bool, n uint32) {
	d.total += n
	if bad {
		d.bad += n
		left = 0
	}
	d.left[min(max(int(left*leftSteps), 0), leftSteps-1)] += n
}

// load is what the load is computed from, besides the demands of the lanes.
type load struct {
	// names are those of the devices.
	names   []string
	devices []steps[busy]
}

// overloaded reports whether a reason for rejecting or dropping a query means that there is
// too much work.
func overloaded(reason overlap.Reason) bool {
	return reason == overlap.ReasonQueueFull || reason == overlap.ReasonDeadlinePassed || reason == overlap.ReasonCannotFinish
}

// turnedAway counts queries that were rejected before they reached the scheduler because
// there was too much work.
func (d *demand) turnedAway(counts *[len(query.TurnedAwayFor)]uint64) {
	for i, n := range counts {
		switch query.TurnedAwayFor[i] {
		case query.ReasonNoMemory, query.ReasonQueueFull, query.ReasonDeadline:
			d.count(0, true, uint32(n))
		}
	}
}

// loadOf returns the load of a device from step first on, which began span ago.
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

// badRate returns the fraction of bad queries.
func (d *demand) badRate() float64 { return float64(d.bad) / float64(max(d.total, 1)) }

// headroom returns the fraction of their time that at least 99 % of the queries had left.
func (d *demand) headroom() float64 {
	least := int64(d.total+99) / 100 // rank of the deciding query, from below
	for i, n := range d.left {
		if least -= int64(n); least <= 0 && d.total > 0 {
			return float64(i) / leftSteps
		}
	}
	return 1
}

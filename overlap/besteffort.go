package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// bestEffortShare is what part of the least slack of the other services a
// group of best-effort work may take. A query of such a service that arrives
// meanwhile has the rest of its slack left.
const bestEffortShare = 0.5

// addSlice puts operators of candidate 0, which is best effort, into the group
// as its first span: nothing else waits, so as many as are predicted to end
// within the allowance, and one at least.
func (d *decision) addSlice() {
	c := &d.candidates[0]
	allowance := d.allowance()
	if d.limit = forever; allowance < forever {
		d.limit = d.at + allowance
	}
	if c.solo.Bound <= allowance {
		d.addWhole(0)
		return
	}
	var found models.Estimate
	end := d.search(c.rest.Start, c.rest.End-1, func(end int) {
		d.ask.add(nil, c.upTo(end))
	}, func(_ int, e models.Estimate) bool {
		if e.Bound > allowance {
			return false
		}
		found = e
		return true
	})
	if end == c.rest.Start {
		end++
		found = d.ask.alone(c.upTo(end))
	}
	d.add(0, end, found, found.Latency)
}

// allowance returns how long best-effort work may hold the device against the
// queries of other services that may arrive: a share of the least slack, which
// is the QoS target less the time alone of a query like the latest.
func (d *decision) allowance() time.Duration {
	d.ask.clear()
	for _, sv := range d.s.services {
		if sv.promises() {
			d.ask.add(nil, sv.typical())
		}
	}
	estimates := d.ask.take()
	least := forever
	for _, sv := range d.s.services {
		if !sv.promises() {
			continue
		}
		if slack := sv.QoSTarget - estimates[0].Latency; slack > 0 {
			least = min(least, slack)
		}
		estimates = estimates[1:]
	}
	if least == forever {
		return forever
	}
	return time.Duration(bestEffortShare * float64(least))
}

// promises reports whether queries of the service that may arrive have a
// target that others must leave room for.
func (sv *service) promises() bool { return !sv.removed && !sv.BestEffort }

// typical returns the span of a whole query like the latest that arrived.
func (sv *service) typical() models.Span {
	return models.Span{Service: sv.ID, End: sv.Operators, Size: max(sv.lastSize, 1), SeqLen: sv.lastSeqLen}
}

package training

import (
	"math"
	"slices"

	"github.com/overlapd/overlapd/internal/stats"
	"github.com/overlapd/overlapd/models"
)

// drift detects that the device has become faster or slower, by repeating a few reference groups.
type drift struct {
	// limit is the change in percent from which on a session reports drift.
	limit  float64
	groups []*reference

	// due is the number of finished measurements at which the next check begins.
	due    int
	checks []driftCheck

	// The current check began after that many measurements. pending holds the references that it
	// has still to run, and changes the changes of the others in percent.
	after   int
	pending []*reference
	changes []float64
}

// reference is a group that is run repeatedly. baseline is its first time in microseconds, or 0
// before it was measured. lost is set once it can no longer be run.
type reference struct {
	group    models.Group
	baseline float64
	lost     bool
}

// remember sets the baseline of a reference. r is nil for a group that is no reference.
func (r *reference) remember(median float64) {
	if r != nil && r.baseline == 0 {
		r.baseline = median
	}
}

// known reports whether any reference has a baseline.
func (d *drift) known() bool {
	return slices.ContainsFunc(d.groups, func(r *reference) bool { return r.baseline > 0 })
}

// next returns the next reference of the current check, and begins a check if one is due. A
// last check runs at the end of the session, if anything was measured since the previous one.
func (d *drift) next(done int, end bool, every int) (task, bool) {
	last := -1
	if len(d.checks) > 0 {
		last = d.checks[len(d.checks)-1].After
	}
	if len(d.pending) == 0 && done != last && (end || done >= d.due) && d.known() {
		for _, r := range d.groups {
			if r.baseline > 0 && !r.lost {
				d.pending = append(d.pending, r)
			}
		}
		d.due, d.after, d.changes = done+every, done, d.changes[:0]
	}
	if len(d.pending) == 0 {
		return task{}, false
	}
	r := d.pending[0]
	d.pending = d.pending[1:]
	return task{kind: taskReference, group: r.group, reference: r}, true
}

// compare records another time of a reference.
func (d *drift) compare(r *reference, median float64) {
	d.changes = append(d.changes, 100*(median/r.baseline-1))
	d.settle()
}

// forget excludes a reference that could not be run.
func (d *drift) forget(r *reference) {
	r.lost = true
	d.settle()
}

// settle ends the check once all its references were run. The result is the median over them,
// so that one disturbed group does not count as drift.
func (d *drift) settle() {
	if len(d.pending) == 0 && len(d.changes) > 0 {
		d.checks = append(d.checks, driftCheck{After: d.after, Percent: math.Round(10*stats.Median(d.changes)) / 10})
	}
}

func (d *drift) report() driftReport {
	r := driftReport{Checks: d.checks}
	for _, c := range d.checks {
		if math.Abs(c.Percent) > math.Abs(r.Worst.Percent) {
			r.Worst = c
		}
	}
	r.Exceeded = math.Abs(r.Worst.Percent) > d.limit
	return r
}

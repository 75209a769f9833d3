package training

import (
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/stats"
)

// drift compares the times of a few reference groups with their first ones.
type drift struct {
	// limit is the change in percent that a session reports.
	limit  float64
	groups []*reference

	// The next check begins when so many measurements as due are finished.
	due    int
	checks []driftCheck

	// Of the check that is running, which began after so many measurements, pending are
	// the references that are still to be run, and changes are those in percent of the
	// others.
	after   int
	pending []*reference
	changes []float64
}

// reference is a group that is run again and again. Its baseline is the first time in
// microseconds, 0 until it was measured; lost is set if it cannot be run any more.
type reference struct {
	group    models.Group
	baseline float64
	lost     bool
}

// remember takes the first time of a group, which may be no reference.
func (r *reference) remember(median float64) {
	if r != nil && r.baseline == 0 {
		r.baseline = median
	}
}

// known reports whether any reference has a first time.
func (d *drift) known() bool {
	return slices.ContainsFunc(d.groups, func(r *reference) bool { return r.baseline > 0 })
}

// next returns the next reference of the check that is running, or that begins if it is
// time for one. The last check comes at the end, if anything was measured since the
// one before.
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

// compare takes the time of a reference that was run again.
func (d *drift) compare(r *reference, median float64) {
	d.changes = append(d.changes, 100*(median/r.baseline-1))
	d.settle()
}

// forget leaves out a reference that could not be run.
func (d *drift) forget(r *reference) {
	r.lost = true
	d.settle()
}

// settle ends the check when all its references were run.
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

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
	groups []reference

	// The next check begins when so many measurements as due are finished.
	due    int
	checks []driftCheck

	// While a check is running, that began after so many measurements, pending are the
	// references that are still to be run, and changes are those in percent of the
	// others.
	running bool
	after   int
	pending []int
	changes []float64
}

// reference is a group that is run again and again. Its baseline is the first time in
// microseconds, 0 until it was measured; lost is set if it cannot be run any more.
type reference struct {
	group    models.Group
	baseline float64
	lost     bool
}

// add makes a group a reference.
func (d *drift) add(g models.Group) int {
	d.groups = append(d.groups, reference{group: g})
	return len(d.groups) - 1
}

// remember takes the first time of a reference; i is -1 for other groups.
func (d *drift) remember(i int, median float64) {
	if i >= 0 && d.groups[i].baseline == 0 {
		d.groups[i].baseline = median
	}
}

// known reports whether any reference has a first time.
func (d *drift) known() bool {
	return slices.ContainsFunc(d.groups, func(r reference) bool { return r.baseline > 0 })
}

// begin starts a check if it is time for one, and reports whether it did. The
// last check comes at the end, if anything was measured since the one before.
func (d *drift) begin(done int, end bool, every int) bool {
	last := -1
	if len(d.checks) > 0 {
		last = d.checks[len(d.checks)-1].After
	}
	if done == last || !end && done < d.due || !d.known() {
		return false
	}
	for i, r := range d.groups {
		if r.baseline > 0 && !r.lost {
			d.pending = append(d.pending, i)
		}
	}
	d.due, d.after, d.changes = done+every, done, d.changes[:0]
	d.running = len(d.pending) > 0
	return d.running
}

// next returns the next reference of the check that is running.
func (d *drift) next() (task, bool) {
	if len(d.pending) == 0 {
		return task{}, false
	}
	i := d.pending[0]
	d.pending = d.pending[1:]
	return task{kind: taskReference, group: d.groups[i].group, reference: i}, true
}

// compare takes the time of a reference that was run again.
func (d *drift) compare(i int, median float64) {
	d.changes = append(d.changes, 100*(median/d.groups[i].baseline-1))
	d.settle()
}

// forget leaves out a reference that could not be run.
func (d *drift) forget(i int) {
	d.groups[i].lost = true
	d.settle()
}

// settle ends the check when all its references were run.
func (d *drift) settle() {
	if !d.running || len(d.pending) > 0 {
		return
	}
	d.running = false
	if len(d.changes) > 0 {
		d.checks = append(d.checks, driftCheck{After: d.after, Percent: stats.Median(d.changes)})
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

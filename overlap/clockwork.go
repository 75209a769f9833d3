package overlap

// clockwork serves as Clockwork does on each device (Abacus, section 7.6): the
// earliest deadline first, one batch at a time, and never one that might end
// late, by the bound of its estimate. Such a query waits, since somebody may
// still learn that it is faster, and is dropped once it would be late in the
// middle of its runs.
type clockwork struct{ edf }

func (clockwork) choose(d *decision) {
	for len(d.settle(1)) > 0 {
		c := &d.candidates[0]
		known := c.solo.Latency > 0 && !c.probes && !c.rank.Filler
		if !known || d.at+c.solo.Bound <= c.deadline {
			d.strict = known
			d.merge(0)
			d.addWhole(0)
			return
		}
		d.skip()
	}
}

// skip leaves the first candidate waiting, and looks at what comes next of its
// service.
func (d *decision) skip() {
	c := d.candidates[0]
	d.candidates = append(d.candidates[:0], d.candidates[1:]...)
	d.unsure = d.unsure || d.s.busy // it may start if the round that runs ends earlier
	c.service.view.pass(&c)
	d.gather(c.service)
}

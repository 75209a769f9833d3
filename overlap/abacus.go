package overlap

import "github.com/overlapd/overlapd/models"

// abacus is the algorithm of the paper, section 6, to the letter. The query
// with the least headroom gets all its operators. The others follow in the
// order of their headrooms as long as the predicted latency is within the
// least: first whole, then as many operators as fit of the first that does
// not. It neither merges queries nor asks whether overlap gains anything, and
// it trusts the prediction.
type abacus struct{ edf }

func (abacus) choose(d *decision) {
	if len(d.settle(1)) == 0 {
		return
	}
	d.daring = true
	d.addWhole(0)
	if first := &d.candidates[0]; first.probes || first.solo.Latency == 0 {
		return
	}
	var found models.Estimate
	fits := func(_ int, e models.Estimate) bool {
		if e.Latency == 0 || d.at+e.Latency > d.limit {
			return false
		}
		found = e
		return true
	}
	n := min(len(d.candidates), maxCandidates)
	last := d.search(0, n-1, func(last int) {
		d.ask.add(d.spans)
		for i := 1; i <= last; i++ {
			d.ask.extend(d.candidates[i].rest)
		}
	}, fits)
	for i := 1; i <= last; i++ {
		d.add(i, d.candidates[i].rest.End, found, 0)
	}
	if last++; last < n {
		c := &d.candidates[last]
		end := d.search(c.rest.Start, c.rest.End-1, func(end int) { d.ask.add(d.spans, c.upTo(end)) }, fits)
		if end > c.rest.Start {
			d.add(last, end, found, 0)
		}
	}
}

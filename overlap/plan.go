package overlap

import "time"

// Plan chooses, while a round runs, the group that is to start when it ends:
// at the predicted latency after its start (Abacus, equation 3), or now if
// that has passed. Nothing is dequeued, dropped or answered. Next takes the
// plan if it still holds. While there is a plan already that no event has
// overturned, and while no round runs, Plan does nothing.
func (s *Scheduler) Plan(now time.Duration) {
	s.clock(now)
	if !s.busy || s.planned {
		return
	}
	s.draft.decide(max(s.now, s.round.Start+s.round.Predicted.Latency))
	if !s.draft.empty() {
		s.planned = true
		s.metrics.Plans.Made++
	}
}

// overturn gives up the plan, if there is one.
func (s *Scheduler) overturn() {
	if s.planned {
		s.planned = false
		s.metrics.Plans.Overturned++
	}
}

// keepPlan reports whether the plan, if there is one, is to be carried out
// now, and gives it up if not.
func (s *Scheduler) keepPlan() bool {
	if s.planned && !s.draft.holds() {
		s.overturn()
	}
	kept := s.planned
	if s.planned = false; kept {
		s.metrics.Plans.Kept++
	}
	return kept
}

// holds reports whether what was decided ahead may be carried out now, by what
// the predictor says now: all that was taken to be past its deadline is, what
// is to be dropped is hopeless, and the group keeps to its limit. News have
// overturned the plan before, and expire has where more deadlines passed.
func (d *decision) holds() bool {
	s := d.s
	if at, ok := s.Wake(); d.unsure || ok && at <= d.at {
		return false
	}
	d.ask.clear()
	for _, o := range d.drops {
		d.ask.add(nil, o.rest)
	}
	if len(d.group) > 0 {
		d.ask.add(d.spans)
	}
	estimates := d.ask.take()
	for i, o := range d.drops {
		if s.now+estimates[i].Latency <= o.deadline {
			return false
		}
	}
	if len(d.group) == 0 {
		return true
	}
	d.predicted = estimates[len(d.drops)]
	first := &d.candidates[d.group[0]]
	switch {
	case len(d.group) > 1 && d.predicted.Latency == 0, first.probes:
		return false
	case d.strict || len(d.group) > 1 || len(first.members) > 1 && first.batch == nil:
		return s.now+d.safe(d.predicted) <= d.limit
	}
	return first.rank.filler || s.now+d.predicted.Latency <= first.deadline
}

package metrics

// Join returns what is told of a daemon with several schedulers, of one of which
// each snapshot is. What they count is added up; of ages the greatest is told,
// and a network predicts groups if it does for all. Version and policy are those
// of the first. The snapshots must not be empty, and stay as they are.
func Join(parts ...*Snapshot) *Snapshot {
	if len(parts) == 1 {
		return parts[0]
	}
	all := &Snapshot{Version: parts[0].Version, Policy: parts[0].Policy, Record: NewRecord(0)}
	all.Scheduler.Predictor = true
	for _, p := range parts {
		all.Age = max(all.Age, p.Age)
		before := len(all.Record.services)
		for _, sv := range p.Services {
			sv.Slot += before
			all.Services = append(all.Services, sv)
		}
		all.GPUs = append(all.GPUs, p.GPUs...)
		all.Scheduler.add(&p.Scheduler)
		all.Record.add(p.Record)
	}
	return all
}

func (s *Scheduler) add(o *Scheduler) {
	s.Schedulers += o.Schedulers
	s.Rounds += o.Rounds
	s.Busy += o.Busy
	s.Made += o.Made
	s.Kept += o.Kept
	s.Overturned += o.Overturned
	s.Inbox += o.Inbox
	s.InboxLimit += o.InboxLimit
	s.BeatAge = max(s.BeatAge, o.BeatAge)
	s.Predictor = s.Predictor && o.Predictor
	s.Unknown += o.Unknown
	for _, c := range o.Fallbacks {
		s.Fallbacks = addCount(s.Fallbacks, c)
	}
}

func addCount(to []Count, c Count) []Count {
	for i := range to {
		if to[i].Reason == c.Reason {
			to[i].N += c.N
			return to
		}
	}
	return append(to, c)
}

// add adds what another record noted, and appends its services.
func (r *Record) add(o *Record) {
	r.turns += o.turns
	r.busy += o.busy
	r.exceeded += o.exceeded
	r.solo += o.solo
	r.gained += o.gained
	r.lost += o.lost
	to, from := r.groups.all(), o.groups.all()
	for i := range to {
		to[i].add(from[i])
	}
	r.services = append(r.services, o.services...)
}

// add adds a histogram with the same bounds.
func (h *Histogram) add(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.sum += o.sum
}

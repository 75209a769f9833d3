package overlap

import "time"

// Waiting is how the queue of a service stands. It is found by looking at every
// query in it, so it is for those who watch and not for decisions.
type Waiting struct {
	Oldest    time.Duration // arrival of the query that came first, if any waits
	Postponed int           // queries that the last triage found no time for
}

// Waiting appends how the queue of each service stands.
func (s *Scheduler) Waiting(to []Waiting) []Waiting {
	for _, sv := range s.services {
		to = append(to, sv.waiting(s.triages))
	}
	return to
}

func (sv *service) waiting(triage uint64) (w Waiting) {
	for i, q := range sv.queue.items {
		if i == 0 || q.Arrival < w.Oldest {
			w.Oldest = q.Arrival
		}
		if triage > 0 && q.postponed == triage {
			w.Postponed++
		}
	}
	return w
}

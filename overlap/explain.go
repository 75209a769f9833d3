package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Explanation says what was seen and chosen for a round.
type Explanation struct {
	Round      uint64
	Planned    bool          // it was decided ahead
	For        time.Duration // the time it was decided for: the start of the round, or when a plan took it to start
	Candidates []Candidate   // the most urgent first
	Dropped    []DroppedWork
	Asked      Asked           // of the predictor
	Predicted  models.Estimate // of the group
	Solo       time.Duration   // that its spans are predicted to take one after another, where the policy asked
	Headroom   time.Duration   // what the group had to keep to, 0 if nothing depended on that
}

// Candidate is work of one service that could have been in a group.
type Candidate struct {
	Head                     // of the batch as it was formed, before the round
	Headroom time.Duration   // until the deadline of the last that wants it
	Solo     models.Estimate // of all that was left of it, 0 if unknown or not asked
	Place    int             // in the group, 0 if it is not in it
	End      int             // of its span in the group
}

// DroppedWork was predicted to be too late even alone.
type DroppedWork struct {
	Head
	Headroom time.Duration
}

// Explain returns what was behind the last round, as it stood when it was first
// asked about that round. Its slices are valid until it is asked about another.
func (s *Scheduler) Explain() Explanation {
	d, e := s.last, &s.explained
	if e.Round == s.round.Number && e.Round > 0 {
		return *e // the log, the timeline and the metrics ask about each round
	}
	*e = Explanation{
		Round: s.round.Number, Planned: s.round.Planned, For: d.at,
		Candidates: e.Candidates[:0], Dropped: e.Dropped[:0],
		Asked: d.asked, Predicted: s.round.Predicted, Solo: d.solo,
	}
	if d.limit != forever {
		e.Headroom = d.limit - d.at
	}
	for i := range d.candidates {
		c := &d.candidates[i]
		e.Candidates = append(e.Candidates, Candidate{
			Head: headOf(c.rank.id, c.rest, c.deadline), Headroom: c.deadline - d.at, Solo: c.solo, End: c.end,
		})
	}
	for place, i := range d.group {
		e.Candidates[i].Place = place + 1
	}
	for _, o := range d.drops {
		e.Dropped = append(e.Dropped, DroppedWork{headOf(o.urgent, o.rest, o.deadline), o.deadline - d.at})
	}
	return *e
}

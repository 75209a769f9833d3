package overlap

import "time"

const (
	// patienceShare is the part of the strictest QoS target for which a round may
	// always run. A group of which nothing is known gets no more, and what is
	// known to be short is not set apart for a hiccup of the host.
	patienceShare = 4

	// maxPatience is how long that is at most, and where no service has a target.
	maxPatience = time.Second
)

// relieve answers the members of an overrun for which it is too late, or whose
// client has left.
func (l *backlog) relieve(b *batch) {
	for _, q := range b.members {
		switch {
		case q.Answered:
			continue
		case q.Cancelled:
			l.report(q, Cancelled, ReasonCancelled)
		case q.Deadline <= l.now:
			l.report(q, Dropped, ReasonDeadlinePassed)
		default:
			continue
		}
		q.Answered, q.Cancelled = true, true
	}
}

// overdue returns when the earliest deadline of a query in an overrun passes.
func (l *backlog) overdue() (at time.Duration, ok bool) {
	for _, b := range l.host.overruns {
		for _, q := range b.members {
			if !q.Answered && (!ok || q.Deadline < at) {
				at, ok = q.Deadline, true
			}
		}
	}
	return at, ok
}

package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

const (
	// patienceShare is the part of the strictest QoS target for which a round may
	// always run. A group of which nothing is known gets no more, and what is
	// known to be short is not set apart for a hiccup of the host.
	patienceShare = 4

	// maxPatience is how long that is at most, and where no service has a target.
	maxPatience = time.Second
)

// Allowed returns for how long a round of a device may run that is predicted to stay within a
// bound, 0 if nothing is known of it. What has not ended by then is an overrun:
// once a round has taken its bound times factor, the device has changed, or the
// estimate was of something else. The caller then ends it by Finish with
// SpanOverrun for each span that still runs.
//
// An overrun goes on beside the rounds that follow. Its service has no span in
// them, since its worker is busy. For the others it is a device that is slower
// than usual, which the predictor follows as it follows any other drift, and each
// overrun is taken to have an equal share of it when a round is allowed its time.
// Its queries are answered at their deadlines, or at once when they are
// cancelled, see Answer.InUse. When it ends, Finish takes its outcome under the
// number of its round, and the batch goes on.
func (l *backlog) Allowed(device int, bound time.Duration, factor float64) time.Duration {
	shares, strictest := 1, patienceShare*maxPatience
	for _, sv := range l.services {
		if sv.busy.has(device) {
			shares++
		}
		if sv.promises() {
			strictest = min(strictest, sv.QoSTarget)
		}
	}
	return max(time.Duration(factor*float64(shares)*float64(bound)), strictest/patienceShare)
}

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
	for _, b := range l.overruns {
		for _, q := range b.members {
			if !q.Answered && (!ok || q.Deadline < at) {
				at, ok = q.Deadline, true
			}
		}
	}
	return at, ok
}

// Unanswered returns the queries of an overrun that have no answer yet, in the
// order in which they were gathered, and whether those are all of its batch. Of any
// other batch there are none.
func (l *backlog) Unanswered(id models.BatchID) (waiting []models.QueryID, all bool) {
	b := l.overrunOf(id)
	if b == nil {
		return nil, false
	}
	for _, q := range b.members {
		if !q.Answered {
			waiting = append(waiting, q.ID)
		}
	}
	return waiting, len(waiting) == len(b.members)
}

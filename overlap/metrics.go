package overlap

import (
	"time"

	"github.com/overlapd/overlapd/models"
)

// Metrics counts since the scheduler was made, apart from the fields that
// say "now".
type Metrics struct {
	Rounds   uint64
	Busy     time.Duration // the time the rounds took together
	Plans    planMetrics
	Services []ServiceMetrics
}

// planMetrics count the plans made ahead. All but the one that there may be now
// were kept or overturned.
type planMetrics struct {
	Made       uint64
	Kept       uint64 // carried out by Next
	Overturned uint64 // by news, or because it did not fit when its time came
}

// ServiceMetrics are the metrics of one service. Arrays are indexed by
// Reason.
type ServiceMetrics struct {
	Name    string
	Down    bool // now
	Queued  int  // queries, now
	Paused  int  // batches, now
	Arrived uint64
	Refused [ReasonCount]uint64 // a query at fault itself counts as ReasonNone

	Finished  uint64
	Late      uint64 // finished after their deadline, which Finished counts as well
	Dropped   [ReasonCount]uint64
	Failed    [ReasonCount]uint64
	Cancelled uint64

	Batches uint64
	Retried uint64
	Merged  uint64 // queries that started in a batch with others

	// Moved counts the queries that arrived for other variants of the same service and
	// came to this one, less those that left it for others.
	Moved int64 `json:",omitempty"`
}

// Add adds what other counts, and what waits there now. The name stays, and
// whether the service is down.
func (m *ServiceMetrics) Add(other ServiceMetrics) {
	m.Queued += other.Queued
	m.Paused += other.Paused
	m.Arrived += other.Arrived
	m.Finished += other.Finished
	m.Late += other.Late
	m.Cancelled += other.Cancelled
	m.Batches += other.Batches
	m.Retried += other.Retried
	m.Merged += other.Merged
	m.Moved += other.Moved
	for r := range ReasonCount {
		m.Refused[r] += other.Refused[r]
		m.Dropped[r] += other.Dropped[r]
		m.Failed[r] += other.Failed[r]
	}
}

func (m *ServiceMetrics) count(a *Answer, deadline time.Duration) {
	switch a.Result {
	case Finished:
		m.Finished++
		if a.At > deadline {
			m.Late++
		}
	case Dropped:
		m.Dropped[a.Reason]++
	case Failed:
		m.Failed[a.Reason]++
	case Cancelled:
		m.Cancelled++
	}
}

// started counts a batch.
func (m *ServiceMetrics) started(b *batch) {
	m.Batches++
	if n := len(b.members); n > 1 && !b.Series {
		m.Merged += uint64(n)
	}
}

// answered returns the number of accepted queries that have ended.
func (m *ServiceMetrics) answered() uint64 {
	n := m.Finished + m.Cancelled
	for r := range ReasonCount {
		n += m.Dropped[r] + m.Failed[r]
	}
	return n
}

// Waiting is how the queue of a service stands. It is found by looking at every
// query in it, so it is for those who watch and not for decisions.
type Waiting struct {
	Oldest    time.Duration // arrival of the query that came first, if any waits
	Postponed int           // queries that the last triage found no time for
	Overrun   bool          // a span of the service runs on beside the rounds, see Scheduler.Allowed
}

// Explanation is what a policy saw and chose for a round.
type Explanation struct {
	Round      uint64
	Planned    bool          // it was decided ahead
	For        time.Duration // the time it was decided for: the start of the round, or when a plan took it to start
	Candidates []Candidate   // the most urgent first
	Dropped    []Candidate   // predicted to be too late even alone
	Asked      asked         // what the predictor was asked
	Solo       time.Duration // the time its spans are predicted to take one after another, where the policy asked
	Headroom   time.Duration // what the group had to keep to, 0 if nothing depended on that
}

// Candidate is the most urgent work of one service, which could have been in a
// group: a paused batch, or the query that its next batch is formed around, as it
// was before the round.
type Candidate struct {
	Service  models.ServiceID
	Batch    models.BatchID // 0 if it is to be formed
	Query    models.QueryID // the most urgent
	Deadline time.Duration
	Start    int // the operator to run next
	Size     int
	SeqLen   int

	Headroom time.Duration   // until the deadline of the last that wants it
	Solo     models.Estimate // the estimate of all that was left of it, 0 if unknown or not asked
	Place    int             // in the group, 0 if it is not in it
	End      int             // where its span in the group ends
	Tried    trial           // the group with all of it that was turned down
}

// explain returns work of a decision for a time.
func explain(urgent models.QueryID, rest models.Span, deadline, at time.Duration) Candidate {
	return Candidate{
		Service: rest.Service, Batch: rest.Batch, Query: urgent, Deadline: deadline,
		Start: rest.Start, Size: rest.Size, SeqLen: rest.SeqLen, Headroom: deadline - at,
	}
}

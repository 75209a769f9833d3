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
	Kept       uint64 // carried out by Ready
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
	if n := len(b.members); n > 1 && n <= b.Size { // not back to back
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
	Round uint64 `json:"-"`

	// Planned is set if the round was decided ahead. For is the time for which it was decided.
	Planned bool          `json:"-"`
	For     time.Duration `json:"for,omitempty"`

	// Candidates come in the order of their urgency. Dropped are those that were predicted to be
	// late even alone.
	Candidates []Candidate `json:"c,omitempty"`
	Dropped    []Candidate `json:"-"`

	// Asked counts what the predictor was asked.
	Asked asked `json:"-"`

	// Solo is the predicted time of the spans one after another, where the policy asked.
	// Headroom is the time that the group had to respect, 0 if there was none.
	Solo     time.Duration `json:"solo,omitempty"`
	Headroom time.Duration `json:"limit,omitempty"`
}

// Candidate is the most urgent work of one service, which could have been in a
// group: a paused batch, or the query that its next batch is formed around, as it
// was before the round.
type Candidate struct {
	// Batch is 0 if it is to be formed. Query is the most urgent of its queries.
	Service  models.ServiceID `json:"sv"`
	Batch    models.BatchID   `json:"b,omitempty"`
	Query    models.QueryID   `json:"id"`
	Deadline time.Duration    `json:"-"`

	// Start is the operator to run next.
	Start  int `json:"from,omitempty"`
	Size   int `json:"n"`
	SeqLen int `json:"seq,omitempty"`

	// Headroom is the time until the deadline of the last query that wants it. Solo is the
	// estimate of its remaining operators, zero if it is unknown or was not asked for.
	Headroom time.Duration   `json:"headroom"`
	Solo     models.Estimate `json:"solo,omitzero"`

	// Place is its position in the group from 1, 0 if it is not in it, and End where its span
	// ends. Tried is the last group with all of it that was rejected.
	Place int   `json:"place,omitempty"`
	End   int   `json:"-"`
	Tried trial `json:"-"`
}

// explain returns work of a decision for a time.
func explain(urgent models.QueryID, rest models.Span, deadline, at time.Duration) Candidate {
	return Candidate{
		Service: rest.Service, Batch: rest.Batch, Query: urgent, Deadline: deadline,
		Start: rest.Start, Size: rest.Size, SeqLen: rest.SeqLen, Headroom: deadline - at,
	}
}

package overlap

import "time"

// Metrics counts since the scheduler was made, apart from the fields that
// say "now".
type Metrics struct {
	Rounds   uint64
	Busy     time.Duration // that the rounds took together
	Plans    PlanMetrics
	Services []ServiceMetrics
}

// PlanMetrics count the plans made ahead. All but the one that there may be now
// were kept or overturned.
type PlanMetrics struct {
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
	Late      uint64 // of the finished, after their deadline
	Dropped   [ReasonCount]uint64
	Failed    [ReasonCount]uint64
	Cancelled uint64

	Batches uint64
	Retried uint64
	Merged  uint64 // queries that started in a batch with others
}

// Metrics returns a copy of the counters, by service ID. Those of a service
// that was removed are zero, its name too.
func (s *Scheduler) Metrics() Metrics {
	m := s.metrics
	m.Services = make([]ServiceMetrics, len(s.services))
	for i, sv := range s.services {
		if sv.removed {
			continue
		}
		m.Services[i] = sv.metrics
		m.Services[i].Down = sv.down
		m.Services[i].Queued = sv.queue.len()
		m.Services[i].Paused = sv.paused.len()
	}
	return m
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

// answered returns the number of accepted queries that have ended.
func (m *ServiceMetrics) answered() uint64 {
	n := m.Finished + m.Cancelled
	for r := range ReasonCount {
		n += m.Dropped[r] + m.Failed[r]
	}
	return n
}

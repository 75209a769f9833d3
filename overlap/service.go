package overlap

import (
	"fmt"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Limits of one service.
const (
	// MaxPaused is how many batches of a service may be paused. With that
	// many, it forms no new batch until one has ended.
	MaxPaused = 16

	// maxCaution bounds how rare probes become. A service whose predicted time
	// exceeds its QoS target would drop every query, and a prediction that is
	// too high would stay so: nothing would run, and nothing be measured. So
	// it runs one all the same. If that ends within the target the next one
	// runs too; if not, the service first rests for the predicted time, then
	// for twice as long, and so on up to this many times.
	maxCaution = 64
)

// service is the scheduler's side of a deployed model.
type service struct {
	models.Service
	serviceState
	removed bool // its ID is free, and it stays down
	queue   heap[*query]
	paused  heap[*batch]
	view    view
	full    error
	metrics ServiceMetrics
}

// serviceState is what a snapshot holds of a service, besides what it promises
// and its work.
type serviceState struct {
	Down    bool
	LastEnd time.Duration // when one of its batches last ran to its end
	Caution int           // predicted times to rest between two probes

	// The dimensions of the query that arrived last.
	LastSize   int `json:"Size"`
	LastSeqLen int `json:"SeqLen"`
}

func newService(m models.Service) *service {
	sv := &service{
		queue: heap[*query]{
			before: func(a, b *query) bool { return a.Rank.before(&b.Rank) },
			moved:  func(q *query, pos int) { q.queuePos = pos },
		},
		paused: heap[*batch]{
			before: func(a, b *batch) bool { return a.Rank.before(&b.Rank) },
			moved:  func(b *batch, pos int) { b.pausedPos = pos },
		},
		metrics: ServiceMetrics{Name: m.Name},
	}
	sv.define(m)
	sv.view.queue, sv.view.paused = newWalk(&sv.queue), newWalk(&sv.paused)
	return sv
}

// define sets what the service promises.
func (sv *service) define(m models.Service) {
	sv.Service, sv.full = m, fmt.Errorf("service %s: %w: %d queries wait", m.Name, ErrQueueFull, m.QueueLimit)
}

// probe reports whether a query that is predicted to end too late is to run
// all the same, see maxCaution.
func (sv *service) probe(now, predicted time.Duration) bool {
	if predicted <= sv.QoSTarget {
		return false
	}
	return sv.Caution == 0 || now-sv.LastEnd >= time.Duration(sv.Caution)*predicted
}

// proved takes in how long the spans of a batch took that has run to its end.
func (sv *service) proved(now, took time.Duration) {
	sv.LastEnd = now
	if took <= sv.QoSTarget {
		sv.Caution = 0
	} else {
		sv.Caution = min(max(1, 2*sv.Caution), maxCaution)
	}
}

// sorted reports whether queries of the service may be postponed.
func (sv *service) sorted() bool { return !sv.Down && !sv.BestEffort }

// promises reports whether queries of the service that may arrive have a
// target that others must leave room for.
func (sv *service) promises() bool { return !sv.removed && !sv.BestEffort }

// typical returns the span of a whole query like the latest that arrived.
func (sv *service) typical() models.Span {
	return models.Span{Service: sv.ID, End: sv.Operators, Size: max(sv.LastSize, 1), SeqLen: sv.LastSeqLen}
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

package overlap

import (
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
	down    bool
	queue   heap[*query]
	paused  heap[*batch]
	lastEnd time.Duration // when one of its batches last ran to its end
	caution int           // predicted times to rest between two probes
	full    error
	metrics ServiceMetrics
}

func newService(m models.Service) *service {
	return &service{
		Service: m,
		queue: heap[*query]{
			before: func(a, b *query) bool { return a.rank.before(&b.rank) },
			moved:  func(q *query, pos int) { q.queuePos = pos },
		},
		paused: heap[*batch]{
			before: func(a, b *batch) bool { return a.rank.before(&b.rank) },
			moved:  func(b *batch, pos int) { b.pausedPos = pos },
		},
		full:    &QueueFullError{Service: m.Name, Limit: m.QueueLimit},
		metrics: ServiceMetrics{Name: m.Name},
	}
}

// head returns the most urgent of the service's work: a paused batch, or nil
// and the rank of a waiting query. ok is false if there is none that can run.
func (sv *service) head() (paused *batch, r *rank, ok bool) {
	if sv.down {
		return nil, nil, false
	}
	if sv.paused.len() > 0 {
		paused = sv.paused.top()
		r = &paused.rank
	}
	if sv.queue.len() > 0 && sv.paused.len() < MaxPaused {
		if q := sv.queue.top(); paused == nil || q.rank.before(r) {
			return nil, &q.rank, true
		}
	}
	return paused, r, paused != nil
}

// probe reports whether a query that is predicted to end too late is to run
// all the same, see maxCaution.
func (sv *service) probe(now, predicted time.Duration) bool {
	if predicted <= sv.QoSTarget {
		return false
	}
	return sv.caution == 0 || now-sv.lastEnd >= time.Duration(sv.caution)*predicted
}

// proved takes in how long the spans of a batch took that has run to its end.
func (sv *service) proved(now, took time.Duration) {
	sv.lastEnd = now
	if took <= sv.QoSTarget {
		sv.caution = 0
	} else {
		sv.caution = min(max(1, 2*sv.caution), maxCaution)
	}
}

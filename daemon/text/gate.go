package text

import (
	"context"
	"sync"
	"time"

	"github.com/overlapd/overlapd/daemon/query"
)

const (
	// batchesAhead is how many of the largest batches requests of several texts may have in the
	// queue of their service: one that runs, and one to run next.
	batchesAhead = 2

	// leastAhead is how many texts they may have there in any case.
	leastAhead = 16

	// queueShare is the divisor of queue_limit for the same. It leaves room for others, and lets
	// a request have more texts than the queue has places.
	queueShare = 2

	// learnedPart is the weight of the last request in what is expected of the next.
	learnedPart = 1.0 / 4

	// mostHopeless is how many requests in a row are rejected because of that. The next one is
	// tried: nothing else would tell that it has become faster.
	mostHopeless = 16
)

// gate admits the texts of a service to its queue, one request after another. A request is
// worth nothing if one of its texts is late. If all requests were queued at once, the scheduler
// would shed texts of each of them where there is no time for all, and none would be answered.
// Behind a gate the first has what it needs, and the last waits without costing anything.
//
// A request of one text does not pass here: it goes to the queue at once.
type gate struct {
	// line holds the request whose texts are being admitted. Others wait in their order.
	line chan struct{}

	mu struct {
		sync.Mutex
		open int

		// pace is how long a token takes from the turn of its request to the last answer, in
		// seconds, 0 before the first request. hopeless is how many were rejected in a row.
		pace     float64
		hopeless int
	}

	// freed has a value if a text was answered. Only the request in line waits for it.
	freed chan struct{}
}

func newGate() *gate { return &gate{line: make(chan struct{}, 1), freed: make(chan struct{}, 1)} }

// most returns how many texts may be in the queue of a service.
func most(v *query.Service) int {
	return max(min(max(batchesAhead*v.MaxBatch, leastAhead), v.QueueLimit/queueShare), 1)
}

// enter waits for the turn of a request, and reports whether it came before ctx was done. The
// caller then calls leave.
func (g *gate) enter(ctx context.Context) bool {
	select {
	case g.line <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// hopeless reports whether a request, whose turn has come, would not be answered in the time
// that is left. Without that, where more arrive than can be answered, each request would start
// when it is nearly too late, and none would be in time. If no other is being answered, it is
// tried.
func (g *gate) hopeless(tokens int, left time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if left.Seconds() >= g.mu.pace*float64(tokens) || g.mu.open == 0 || g.mu.hopeless == mostHopeless {
		g.mu.hopeless = 0
		return false
	}
	g.mu.hopeless++
	return true
}

// learn takes in how long an answered request took since its turn.
func (g *gate) learn(tokens int, took time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	pace := took.Seconds() / float64(tokens)
	if g.mu.pace == 0 {
		g.mu.pace = pace
	}
	g.mu.pace += learnedPart * (pace - g.mu.pace)
}

// leave ends the turn of a request.
func (g *gate) leave() { <-g.line }

// admit waits until fewer texts than most are in the queue, and reports whether that was before
// ctx was done. The caller then calls answered.
func (g *gate) admit(ctx context.Context, most int) bool {
	for ctx.Err() == nil {
		g.mu.Lock()
		if g.mu.open < most {
			g.mu.open++
			g.mu.Unlock()
			return true
		}
		g.mu.Unlock()
		select {
		case <-g.freed:
		case <-ctx.Done():
		}
	}
	return false
}

// answered ends an admission.
func (g *gate) answered() {
	g.mu.Lock()
	g.mu.open--
	g.mu.Unlock()
	select {
	case g.freed <- struct{}{}:
	default:
	}
}

package daemon

import (
	"slices"
	"strings"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// slot is a place among the services of a unit: its position is the ID by
// which scheduler, executor and predictor know the service in it. A place that
// is free is nil. The slots belong to the scheduler goroutine.
type slot struct {
	service *query.Service
	config  config.Service
	threads int            // of its worker
	model   emulated.Model // on an emulated device
	worker  worker
	release func() // gives back what it was admitted to of a GPU's memory

	state   slotState
	joining *joining      // while it joins
	ended   chan struct{} // closed when a service that was retired is gone, nil if nobody waits

	series   models.ServiceID       // slot under which its queries are counted
	past     overlap.ServiceMetrics // counted by those whose place it has taken, and that are gone
	restarts uint64                 // of their workers
	starts   uint64                 // of its own
}

// slotState is where a service stands between coming and going.
type slotState uint8

const (
	slotServing  slotState = iota // requests find it
	slotJoining                   // it loads its model for the first time
	slotRetiring                  // requests do not find it any more, and those that did are answered
	slotLeaving                   // its worker ends
)

// joining is a service on its way to take requests.
type joining struct {
	news  chan config.Step
	ready chan error // holds one: nil, or why it does not come
	lost  int        // workers
}

// tell passes progress on, unless nobody has read what was told before.
func (j *joining) tell(s config.Step) {
	select {
	case j.news <- s:
	default:
	}
}

// worker is what the loop knows of a service's worker.
type worker struct {
	info    *wire.Info // what the last one learned of its model, nil before
	fresh   bool       // it became ready after the last round of its service was sent
	fault   error      // why it was given up, nil if that is not known
	givenUp bool       // it was lost too often and does not come back, or has a model that cannot be served
}

// scheduled returns a service as the scheduler first sees it. Its operators
// are not known before its worker has loaded the model; until then it is down.
func scheduled(id models.ServiceID, s *config.Service) models.Service {
	return models.Service{
		ID: id, Name: s.Name, Operators: 1,
		QoSTarget: s.Target, QueueLimit: s.QueueLimit, MaxBatch: s.MaxBatch, BestEffort: s.BestEffort,
	}
}

// startedAgain returns how often workers were started again, its own and those of the
// services whose place it has taken.
func (s *slot) startedAgain() uint64 { return s.restarts + max(s.starts, 1) - 1 }

// name returns the name of the service in a slot. Late news may be of one that
// is gone.
func (l *loop) name(id models.ServiceID) string {
	if s := l.slots[id]; s != nil {
		return s.config.Name
	}
	return "(removed)"
}

// furnish gives a slot what follows from its configuration.
func (u *unit) furnish(s *slot) {
	if s.threads = u.threads(&s.config); u.emulation == nil {
		return
	}
	known := u.emulation.known[strings.TrimPrefix(s.config.Model, config.EmulatedPrefix)]
	s.model = known.Model
	s.service.MaxQueryBatch = min(s.service.MaxQueryBatch, slices.Max(known.Sizes))
	s.service.MaxSeqLen = known.longest
}

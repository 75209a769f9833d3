package daemon

import (
	"slices"
	"strings"

	"github.com/overlapd/overlapd/executor/emulated"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/segments"
)

// slot is a place among the services of a unit: its position is the ID by
// which scheduler, executor and predictor know the service in it. The slots
// belong to the scheduler goroutine.
type slot struct {
	service *Service
	config  ServiceConfig
	threads int            // of its worker
	model   emulated.Model // on an emulated device
	worker  worker
}

// worker is what the loop knows of a service's worker.
type worker struct {
	info    *segments.Info // what the last one learned of its model, nil before
	fresh   bool           // it became ready after the last round of its service was sent
	fault   error          // why it was given up, nil if that is not known
	givenUp bool           // it was lost too often and does not come back, or has a model that cannot be served
}

// scheduled returns a service as the scheduler first sees it. Its operators
// are not known before its worker has loaded the model; until then it is down.
func scheduled(id models.ServiceID, s *ServiceConfig) models.Service {
	return models.Service{
		ID: id, Name: s.Name, Operators: 1,
		QoSTarget: s.Target, QueueLimit: s.QueueLimit, MaxBatch: s.MaxBatch, BestEffort: s.BestEffort,
	}
}

// name returns the name of the service in a slot.
func (l *loop) name(id models.ServiceID) string { return l.slots[id].config.Name }

// furnish gives a slot what follows from its configuration.
func (u *unit) furnish(s *slot) {
	if u.emulation == nil {
		s.threads = u.threads(&s.config)
		return
	}
	known := u.emulation.known[strings.TrimPrefix(s.config.Model, EmulatedPrefix)]
	s.model = known.Model
	s.service.MaxQueryBatch = min(s.service.MaxQueryBatch, slices.Max(known.Sizes))
	s.service.MaxSeqLen = known.longest
}

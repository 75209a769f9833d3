package loop

import (
	"slices"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap"
	"github.com/overlapd/overlapd/segments/wire"
)

// routes returns the pipelines that the plan of a service has for a model, none where there
// is no plan or no model is loaded yet.
func (w *workers) routes(of *config.Service, model *wire.Info) ([]models.Pipeline, error) {
	if of.Planned == nil || model == nil {
		return nil, nil
	}
	return of.Planned.Routes(w.env.names(), model.Hash, len(model.Operators))
}

// plan has a service that has just loaded its model go by its plan. Where that is for another
// model its batches stay where they start; a service that is still to join does not.
func (w *workers) plan(s *service) (err error) {
	s.route = route{waits: true}
	if s.route.next, err = w.routes(&s.config, s.info); err == nil {
		return nil
	}
	if s.route.refused = err; s.state == stateJoining {
		return err
	}
	w.env.log.Error().Err(err).Str("service", s.config.Name).Msg("plan not followed: batches end on the device on which they start")
	return nil
}

// follow has a service take the pipelines that wait, once the workers are ready that they
// need. Batches that have started keep their own.
func (w *workers) follow(s *service) error {
	missing := func(device int) bool { r := s.replicas[device]; return r == nil || !r.ready() }
	for _, p := range s.route.next {
		for _, stage := range p.Stages {
			if slices.ContainsFunc(stage.Devices, missing) {
				return nil
			}
		}
	}
	spec := w.services.specs[s.entry.ID]
	if !s.route.waits || len(spec.Pipelines)+len(s.route.next) == 0 {
		s.route.waits = false
		return nil
	}
	spec.Pipelines = s.route.next
	if err := w.env.step(overlap.Event{Kind: overlap.Change, Definition: spec}); err != nil {
		return err
	}
	w.services.specs[s.entry.ID] = spec
	s.route = route{since: max(w.env.now(), 1)}
	w.env.log.Info().Str("service", s.config.Name).Int("pipelines", len(spec.Pipelines)).Msg("plan followed")
	return nil
}

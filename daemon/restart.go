package daemon

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
)

// These errors are for Restart.
var (
	// ErrNoService is returned when there is no service of that name.
	ErrNoService = errors.New("there is no such service; overlapd status lists them")

	// ErrNotGivenUp is returned when a service was not given up, so that there
	// is nothing to try again.
	ErrNotGivenUp = errors.New("only a service that was given up is restarted by hand")
)

// Restart tries a service again whose worker was lost too often, or that found
// no room on its GPU. It does not wait for the worker.
func (d *Daemon) Restart(service string) error {
	s := d.face.Service([]byte(service))
	if s == nil {
		return fmt.Errorf("service %q: %w", service, ErrNoService)
	}
	if err := s.Backend.(*backend).restart(s); err != nil {
		return fmt.Errorf("service %s: %w", service, err)
	}
	d.log.Info().Str("service", service).Msg("starting a service again that was given up, as was asked for")
	return nil
}

// restarter is an executor that has processes to start.
type restarter interface {
	Restart(models.ServiceID) error
}

func (b *backend) restart(s *query.Service) error {
	state, err := b.exec.State(s.ID)
	if err != nil {
		return err
	}
	r, ok := b.exec.(restarter)
	switch {
	case ok && state.Phase == executor.GivenUp:
		return r.Restart(s.ID)
	case s.GivenUp():
		return fmt.Errorf("%w, and the worker of this one runs: it is its model that cannot be served; change the model and reload", ErrNotGivenUp)
	}
	return fmt.Errorf("%w, and this one is %s", ErrNotGivenUp, state.Phase)
}

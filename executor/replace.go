package executor

import (
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// Replace ends the worker of a service, if one lives, so that another takes its
// place. What it ran is lost with the cause and can be run again; the loss does
// not count towards giving the service up, so whoever calls this has a limit of
// his own. It does not wait, and may be called while an event is told.
func (e *Executor) Replace(id models.ServiceID, cause error) error {
	s := e.service(id)
	if s == nil {
		return fmt.Errorf("%w: %d", ErrUnknownService, id)
	}
	s.mu.Lock()
	w := s.mu.living
	s.mu.Unlock()
	if w != nil {
		w.lose(fmt.Errorf("%w: %w", ErrReplaced, cause))
	}
	return nil
}

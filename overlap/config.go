package overlap

import (
	"errors"
	"fmt"

	"github.com/overlapd/overlapd/models"
)

// Limits of a configuration.
const (
	MaxServices   = 64
	MaxQueueLimit = 1 << 20 // queries
	MaxMaxBatch   = 1 << 12
	MaxMaxRetries = 16
)

// Config is what a Scheduler schedules, and by which rules.
type Config struct {
	Services   []models.Service // each ID is its position
	Policy     string           // one of Policies
	Predictor  Predictor        // called only inside the scheduler's methods
	Ways       int              // groups that a search asks about at once, 0 for DefaultWays
	MaxRetries int              // times that a query whose worker was lost is queued again
}

// Validate reports every fault of the configuration. Two services may have the
// same name: one of them takes the place of the other.
func (c *Config) Validate() error {
	faults := c.ruleFaults()
	if n := len(c.Services); n < 1 || n > MaxServices {
		faults = append(faults, fmt.Errorf("%d services: want 1 to %d", n, MaxServices))
	}
	for i := range c.Services {
		faults = append(faults, serviceFaults(&c.Services[i], i)...)
	}
	return errors.Join(faults...)
}

// ruleFaults are those of everything but the services.
func (c *Config) ruleFaults() (faults []error) {
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if policyNamed(c.Policy) == nil {
		fault("unknown policy %q", c.Policy)
	}
	if c.Predictor == nil {
		fault("no predictor")
	}
	if c.Ways < 0 || c.Ways > MaxWays {
		fault("%d ways: want 0 to %d", c.Ways, MaxWays)
	}
	if c.MaxRetries < 0 || c.MaxRetries > MaxMaxRetries {
		fault("max retries %d: want 0 to %d", c.MaxRetries, MaxMaxRetries)
	}
	return faults
}

func serviceFaults(sv *models.Service, position int) (faults []error) {
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("service %d (%s): %w", position, sv.Name, fmt.Errorf(format, args...)))
	}
	if sv.ID != models.ServiceID(position) {
		fault("ID %d is not its position", sv.ID)
	}
	if sv.Name == "" {
		fault("no name")
	}
	if sv.Operators < 1 {
		fault("%d operators: want at least 1", sv.Operators)
	}
	if sv.QoSTarget <= 0 {
		fault("QoS target %v: want more than 0", sv.QoSTarget)
	}
	if sv.QueueLimit < 1 || sv.QueueLimit > MaxQueueLimit {
		fault("queue limit %d: want 1 to %d", sv.QueueLimit, MaxQueueLimit)
	}
	if sv.MaxBatch < 0 || sv.MaxBatch > MaxMaxBatch {
		fault("max batch %d: want 0 to %d", sv.MaxBatch, MaxMaxBatch)
	}
	return faults
}

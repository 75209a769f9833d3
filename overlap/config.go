package overlap

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/overlapd/overlapd/models"
)

// Limits of a configuration.
const (
	MaxServices   = 1 << 14
	MaxDevices    = 1024
	MaxQueueLimit = 1 << 20 // queries
	MaxMaxBatch   = 1 << 12
	MaxMaxRetries = 16
)

// Config is what a Scheduler schedules, and by which rules.
type Config struct {
	Services   []models.Service // each ID is its position
	Policy     string           // one of Policies
	Devices    []Predictor      // what predicts each device of the pool, called only inside the scheduler's methods; devices with the same one are alike
	Ways       int              // groups that a search asks about at once, 0 for DefaultWays
	MaxRetries int              // times that a query whose worker was lost is queued again

	// Selector says which variant answers what waits for a service that has some. Without
	// one that is the fastest.
	Selector Selector `json:"-"`
}

// Validate reports every fault of the configuration. Two services may have the
// same name: one of them takes the place of the other.
func (c *Config) Validate() error {
	faults := c.ruleFaults()
	n := len(c.Services)
	faults.when(n < 1 || n > MaxServices, "%d services: want 1 to %d", n, MaxServices)
	for i := range c.Services {
		faults = append(faults, serviceFaults(&c.Services[i], i)...)
	}
	return errors.Join(faults...)
}

// faults are what is wrong with a configuration.
type faults []error

// when adds a fault if there is one.
func (f *faults) when(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// ruleFaults are those of everything but the services.
func (c *Config) ruleFaults() (f faults) {
	f.when(policyNamed(c.Policy) == nil, "unknown policy %q", c.Policy)
	n := len(c.Devices)
	f.when(n < 1 || n > MaxDevices, "%d devices: want 1 to %d", n, MaxDevices)
	f.when(slices.Contains(c.Devices, nil), "a device without a predictor")
	f.when(c.Ways < 0 || c.Ways > MaxWays, "%d ways: want 0 to %d", c.Ways, MaxWays)
	f.when(c.MaxRetries < 0 || c.MaxRetries > MaxMaxRetries, "max retries %d: want 0 to %d", c.MaxRetries, MaxMaxRetries)
	return f
}

func serviceFaults(sv *models.Service, position int) (f faults) {
	f.when(sv.ID != models.ServiceID(position), "ID %d is not its position", sv.ID)
	f.when(sv.Name == "", "no name")
	f.when(sv.Operators < 1, "%d operators: want at least 1", sv.Operators)
	f.when(sv.QoSTarget <= 0, "QoS target %v: want more than 0", sv.QoSTarget)
	f.when(sv.QueueLimit < 1 || sv.QueueLimit > MaxQueueLimit, "queue limit %d: want 1 to %d", sv.QueueLimit, MaxQueueLimit)
	f.when(!(sv.Accuracy >= 0) || math.IsInf(sv.Accuracy, 0), "accuracy %v: want a number of at least 0", sv.Accuracy)
	f.when(sv.MaxBatch < 0 || sv.MaxBatch > MaxMaxBatch, "max batch %d: want 0 to %d", sv.MaxBatch, MaxMaxBatch)
	for i, err := range f {
		f[i] = fmt.Errorf("service %d (%s): %w", position, sv.Name, err)
	}
	return f
}

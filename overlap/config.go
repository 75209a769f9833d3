package overlap

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/overlapd/overlapd/models"
)

// Limits of a configuration.
const (
	MaxServices   = 1 << 14
	MaxDevices    = 1024
	MaxQueueLimit = 1 << 20 // queries
	MaxMaxBatch   = 1 << 12
	MaxMaxRetries = 16
	maxPipelines  = 64
	maxStages     = 8
)

// DefaultRoundTime is about what a round takes in addition to its group: 20 to 50 µs on a CPU, and
// 100 µs with a GPU.
const DefaultRoundTime = 50 * time.Microsecond

// Config is what a Scheduler schedules, and by which rules.
type Config struct {
	Services   []models.Service // each ID is its position
	Policy     string           // one of Policies or Comparisons
	Devices    []Predictor      // what predicts each device of the pool, called only inside the scheduler's methods; devices with the same one are alike
	Ways       int              // groups that a search asks about at once, 0 for DefaultWays
	MaxRetries int              // times that a query whose worker was lost is queued again

	// Links has for each device the link over which batches come and go, of which each
	// carries one out and one in at a time. Without it no batch waits for another's move.
	Links []int `json:",omitempty"`

	// Alone has for each device whether its groups have one span each, as on a GPU whose
	// kernels of different processes take turns. Without it none of them is so.
	Alone []bool `json:",omitempty"`

	// RoundTime is what a round takes in addition to its group: to hand it to workers and
	// back. 0 means nothing. Where a model takes no longer, its queries run back to back in one
	// round, and slices take many times as long.
	RoundTime time.Duration `json:",omitempty"`

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
		faults = append(faults, serviceFaults(&c.Services[i], i, len(c.Devices))...)
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
	f.when(len(c.Links) > 0 && len(c.Links) != n, "links of %d devices: want one for each of %d, or none at all", len(c.Links), n)
	f.when(len(c.Alone) > 0 && len(c.Alone) != n, "alone of %d devices: want one for each of %d, or none at all", len(c.Alone), n)
	for i, link := range c.Links {
		f.when(link < 0 || link >= MaxDevices, "device %d has link %d: want 0 to %d", i, link, MaxDevices-1)
	}
	f.when(c.Ways < 0 || c.Ways > MaxWays, "%d ways: want 0 to %d", c.Ways, MaxWays)
	f.when(c.RoundTime < 0, "round time %v: want at least 0", c.RoundTime)
	f.when(c.MaxRetries < 0 || c.MaxRetries > MaxMaxRetries, "max retries %d: want 0 to %d", c.MaxRetries, MaxMaxRetries)
	return f
}

func serviceFaults(sv *models.Service, position, devices int) (f faults) {
	f.when(sv.ID != models.ServiceID(position), "ID %d is not its position", sv.ID)
	f.when(sv.Name == "", "no name")
	f.when(sv.Operators < 1, "%d operators: want at least 1", sv.Operators)
	f.when(sv.QoSTarget <= 0, "QoS target %v: want more than 0", sv.QoSTarget)
	f.when(sv.QueueLimit < 1 || sv.QueueLimit > MaxQueueLimit, "queue limit %d: want 1 to %d", sv.QueueLimit, MaxQueueLimit)
	f.when(!(sv.Accuracy >= 0) || math.IsInf(sv.Accuracy, 0), "accuracy %v: want a number of at least 0", sv.Accuracy)
	f.when(sv.MaxBatch < 0 || sv.MaxBatch > MaxMaxBatch, "max batch %d: want 0 to %d", sv.MaxBatch, MaxMaxBatch)
	f.when(sv.BestEffort && len(sv.Pipelines) > 0, "pipelines: best effort reserves nothing, leave them out")
	f.when(len(sv.Pipelines) > maxPipelines, "%d pipelines: want at most %d", len(sv.Pipelines), maxPipelines)
	for i := range sv.Pipelines {
		for _, err := range pipelineFaults(&sv.Pipelines[i], sv.Operators, devices) {
			f = append(f, fmt.Errorf("pipeline %d: %w", i, err))
		}
	}
	for i, err := range f {
		f[i] = fmt.Errorf("service %d (%s): %w", position, sv.Name, err)
	}
	return f
}

// pipelineFaults are those of a pipeline of a model with some operators.
func pipelineFaults(p *models.Pipeline, operators, devices int) (f faults) {
	n := len(p.Stages)
	f.when(p.Batch < 1 || p.Batch > MaxMaxBatch, "batch %d: want 1 to %d", p.Batch, MaxMaxBatch)
	f.when(n < 1 || n > maxStages, "%d stages: want 1 to %d", n, maxStages)
	start := 0
	for k := range p.Stages {
		g := &p.Stages[k]
		f.when(g.End <= start, "stage %d ends before operator %d: want more than %d, where it begins", k, g.End, start)
		f.when(g.Move < 0, "stage %d: a move of %v: want at least 0", k, g.Move)
		f.when(len(g.Devices) == 0, "stage %d has no device", k)
		for i, d := range g.Devices {
			f.when(d < 0 || d >= devices, "stage %d on device %d: the pool has 0 to %d", k, d, devices-1)
			f.when(slices.Contains(g.Devices[:i], d), "stage %d has device %d twice", k, d)
		}
		start = g.End
	}
	f.when(n > 0 && start != operators, "its last stage ends before operator %d: want %d, all that the model has; make the plan anew for it", start, operators)
	return f
}

// badService reports every fault of a definition.
func badService(l *backlog, m *models.Service) error {
	if faults := serviceFaults(m, int(m.ID), len(l.host.devices)); len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrBadService, errors.Join(faults...))
	}
	return nil
}

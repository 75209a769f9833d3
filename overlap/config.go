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
	maxDevices    = 1024
	maxQueueLimit = 1 << 20 // queries
	maxMaxBatch   = 1 << 12
	maxMaxRetries = 16
	MaxUnits      = 128
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

	// Alone has for each device whether its groups have one span each, as on a CPU, or a GPU whose
	// kernels of different processes take turns. Without it none of them is so.
	Alone []bool `json:",omitempty"`

	// Units has for each device of how many units it consists, as a CPU does of cores. On one of
	// several a round may have one span on a share of them, and such rounds start and end at any time.
	// Without it each has one.
	Units []int `json:",omitempty"`

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
	faults.when(n > MaxServices, "%d services: want at most %d", n, MaxServices)
	for i := range c.Services {
		faults = append(faults, serviceFaults(&c.Services[i], i, c.each())...)
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
	f.when(n < 1 || n > maxDevices, "%d devices: want 1 to %d", n, maxDevices)
	f.when(slices.Contains(c.Devices, nil), "a device without a predictor")
	f.when(len(c.Links) > 0 && len(c.Links) != n, "links of %d devices: want one for each of %d, or none at all", len(c.Links), n)
	f.when(len(c.Alone) > 0 && len(c.Alone) != n, "alone of %d devices: want one for each of %d, or none at all", len(c.Alone), n)
	f.when(len(c.Units) > 0 && len(c.Units) != n, "units of %d devices: want one for each of %d, or none at all", len(c.Units), n)
	_, shares := policyNamed(c.Policy).(overlap)
	for i, units := range c.Units {
		f.when(units < 1 || units > MaxUnits, "device %d has %d units: want 1 to %d", i, units, MaxUnits)
		f.when(units > 1 && !shares, "device %d has %d units: policy %s gives no shares, leave them out", i, units, c.Policy)
	}
	for i, link := range c.Links {
		f.when(link < 0 || link >= maxDevices, "device %d has link %d: want 0 to %d", i, link, maxDevices-1)
	}
	f.when(c.Ways < 0 || c.Ways > maxWays, "%d ways: want 0 to %d", c.Ways, maxWays)
	f.when(c.RoundTime < 0, "round time %v: want at least 0", c.RoundTime)
	f.when(c.MaxRetries < 0 || c.MaxRetries > maxMaxRetries, "max retries %d: want 0 to %d", c.MaxRetries, maxMaxRetries)
	return f
}

// each returns of how many units each device consists.
func (c *Config) each() []int {
	if len(c.Units) == len(c.Devices) {
		return c.Units
	}
	return slices.Repeat([]int{1}, len(c.Devices))
}

// serviceFaults are those of a service, where each device has so many units.
func serviceFaults(sv *models.Service, position int, units []int) (f faults) {
	f.when(sv.ID != models.ServiceID(position), "ID %d is not its position", sv.ID)
	f.when(sv.Name == "", "no name")
	f.when(sv.Operators < 1, "%d operators: want at least 1", sv.Operators)
	f.when(sv.QoSTarget <= 0, "QoS target %v: want more than 0", sv.QoSTarget)
	f.when(sv.QueueLimit < 1 || sv.QueueLimit > maxQueueLimit, "queue limit %d: want 1 to %d", sv.QueueLimit, maxQueueLimit)
	f.when(!(sv.Accuracy >= 0) || math.IsInf(sv.Accuracy, 0), "accuracy %v: want a number of at least 0", sv.Accuracy)
	f.when(sv.MaxBatch < 0 || sv.MaxBatch > maxMaxBatch, "max batch %d: want 0 to %d", sv.MaxBatch, maxMaxBatch)
	f.when(sv.BestEffort && len(sv.Pipelines) > 0, "pipelines: best effort reserves nothing, leave them out")
	f.when(len(sv.Pipelines) > maxPipelines, "%d pipelines: want at most %d", len(sv.Pipelines), maxPipelines)
	for i := range sv.Pipelines {
		for _, err := range pipelineFaults(&sv.Pipelines[i], sv.Operators, units) {
			f = append(f, fmt.Errorf("pipeline %d: %w", i, err))
		}
	}
	for i, err := range f {
		f[i] = fmt.Errorf("service %d (%s): %w", position, sv.Name, err)
	}
	return f
}

// pipelineFaults are those of a pipeline of a model with some operators.
func pipelineFaults(p *models.Pipeline, operators int, units []int) (f faults) {
	n := len(p.Stages)
	f.when(p.Batch < 1 || p.Batch > maxMaxBatch, "batch %d: want 1 to %d", p.Batch, maxMaxBatch)
	f.when(n < 1 || n > maxStages, "%d stages: want 1 to %d", n, maxStages)
	start := 0
	for k := range p.Stages {
		g := &p.Stages[k]
		f.when(g.End <= start, "stage %d ends before operator %d: want more than %d, where it begins", k, g.End, start)
		f.when(g.Move < 0, "stage %d: a move of %v: want at least 0", k, g.Move)
		f.when(len(g.Devices) == 0, "stage %d has no device", k)
		for i, d := range g.Devices {
			f.when(d < 0 || d >= len(units), "stage %d on device %d: the pool has 0 to %d", k, d, len(units)-1)
			f.when(d >= 0 && d < len(units) && units[d] > 1, "stage %d on device %d, which gives shares: want one of a single unit", k, d)
			f.when(slices.Contains(g.Devices[:i], d), "stage %d has device %d twice", k, d)
		}
		start = g.End
	}
	f.when(n > 0 && start != operators, "its last stage ends before operator %d: want %d, all that the model has; make the plan anew for it", start, operators)
	return f
}

// badService reports every fault of a definition.
func badService(l *backlog, m *models.Service) error {
	if faults := serviceFaults(m, int(m.ID), l.host.units()); len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrBadService, errors.Join(faults...))
	}
	return nil
}

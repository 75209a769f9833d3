package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/segments/wire"
)

// runner returns what runs rounds.
func (u *unit) runner(o *Options, specs []executor.ServiceSpec) (runner, error) {
	workers := o.workers
	if workers == nil {
		workers = func(o executor.Options) (runner, error) { return executor.New(o) }
	}
	w := &u.config.Worker
	options := executor.Options{
		Command:     o.Worker,
		Services:    specs,
		LoadTimeout: w.LoadTimeout,
		SpanTimeout: w.SpanTimeout,
		Poll:        w.Poll,
		Policy:      child.Policy{BackoffMin: w.BackoffMin, BackoffMax: w.BackoffMax, RestartLimit: w.RestartLimit},
		Events:      u.backend.event,
		BeforeKill:  u.backend.beforeKill(),
	}
	if u.emulation != nil {
		options.Inside = u.emulation.inside(u.config.DeviceSeed)
	}
	return workers(options)
}

// specs describes the workers of all services to the executor, with what gives
// back their memory.
func (u *unit) specs() (specs []executor.ServiceSpec, releases []func(), err error) {
	n := len(u.config.Services)
	specs, releases = make([]executor.ServiceSpec, n), make([]func(), n)
	for i := range specs {
		if specs[i], releases[i], err = u.spec(models.ServiceID(i), &u.config.Services[i]); err != nil {
			return nil, nil, err
		}
	}
	return specs, releases, nil
}

// spec describes the worker of a service to the executor. A model of the zoo is
// built if it is not there yet. On a GPU, memory is accounted for until release
// is called.
func (u *unit) spec(id models.ServiceID, s *config.Service) (spec executor.ServiceSpec, release func(), err error) {
	release = func() {}
	path, err := u.model(s.Model)
	if err != nil {
		return spec, release, fmt.Errorf("service %s: %w", s.Name, err)
	}
	w := &u.config.Worker
	spec = executor.ServiceSpec{
		ID:   id,
		Name: s.Name,
		Load: wire.LoadSpec{
			Service:           s.Name,
			ModelPath:         path,
			CacheDir:          filepath.Join(u.config.CacheDir(), "optimized"),
			Threads:           u.threads(s),
			Spin:              w.Spin,
			CutTarget:         s.Cut,
			MaxBatch:          s.MaxBatch,
			IntermediateBytes: w.IntermediateBytes,
		},
		InputBytes:  w.InputBytes,
		OutputBytes: w.OutputBytes,
	}
	if u.part != nil {
		release, err = u.place(&spec, s, u.memory)
	}
	if err != nil {
		err = fmt.Errorf("service %s: %w", s.Name, err)
	}
	return spec, release, err
}

// threads returns how many threads the worker of a service has.
func (u *unit) threads(s *config.Service) int {
	switch {
	case s.Threads != 0:
		return s.Threads
	case u.config.Worker.Threads != 0:
		return u.config.Worker.Threads
	}
	return u.cores
}

// model returns the file of a model, which is built first if it is one of the
// zoo's. A model of an emulated device has none and is known by its name.
func (u *unit) model(model string) (string, error) {
	if u.emulation != nil {
		return strings.TrimPrefix(model, config.EmulatedPrefix), nil
	}
	name, ok := strings.CutPrefix(model, config.ZooPrefix)
	if !ok {
		return filepath.Abs(model)
	}
	started := time.Now()
	path, err := zoo.Build(name, filepath.Join(u.config.CacheDir(), "models"), zooSeed, nil)
	if took := time.Since(started); err == nil && took > time.Second/2 {
		u.log.Info().Str("model", name).Dur("took", took).Msg("model of the zoo is built")
	}
	return path, err
}

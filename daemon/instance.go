package daemon

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/models/zoo"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
)

// instance is a scheduler with the services, the workers and the device that it
// decides about. A daemon has one, or one for each instance of a GPU that is
// divided: what runs on one instance takes nothing from another.
type instance struct {
	config    config.Config // with its own services only
	log       zerolog.Logger
	state     *state
	keeper    *keeper
	backend   *backend
	cores     int         // threads of a service that sets none
	memory    *gpu.Ledger // of the part, nil without a GPU
	device    string
	emulation *emulation // nil for a device that computes
	part      *gpu.Part  // nil without a GPU
	dir       string     // of the decision log, in the state folder
	decisions *journal.Writer
}

// open makes everything of an instance that can be refused.
func (u *instance) open(d *Daemon, o *Options) error {
	u.cores = o.Cores
	if u.part != nil {
		u.memory = u.part.Ledger()
	}
	specs, releases, err := u.specs()
	if err != nil {
		return err
	}
	b := newBackend(u.config, u.log)
	u.backend = b
	b.device, b.keeper, b.emulation = u.device, u.keeper, u.emulation
	b.goroutines, b.life = &d.goroutines, d.life
	b.part = u.part
	if u.part != nil {
		b.gpus = gpuReadings(u.part)
	}
	if u.emulation == nil {
		b.profiles = u
	}
	if b.exec, err = u.runner(o, specs); err != nil {
		return err
	}
	if err := u.openDecisions(); err != nil {
		return err
	}
	header := journal.Header{Version: o.Version, Commit: o.Commit, Device: u.device, Epoch: b.epoch}
	if err := b.newLoop(u.config, u.learning(o.Fit), u.decisions, header); err != nil {
		return err
	}
	b.loop.learner.fitter = o.Fit
	for i, s := range b.loop.fleet.members {
		u.furnish(s)
		s.release = releases[i]
	}
	return nil
}

// start lets the instance decide, and starts its workers.
func (u *instance) start() error {
	b := u.backend
	b.running = true
	b.goroutines.Go(b.loop.run)
	b.watchGPU()
	return b.exec.Start(context.Background())
}

// stop ends the workers, and then the scheduler goroutine.
func (u *instance) stop() error {
	b := u.backend
	if b == nil || b.exec == nil {
		return nil
	}
	err := b.exec.Close()
	if b.loop != nil && b.running {
		<-b.done
	}
	return err
}

// decisionDir is where the decision log lies. Each instance has its own.
func (u *instance) decisionDir() string { return filepath.Join(u.config.StateDir, u.dir) }

// openDecisions opens the decision log, if there is to be one.
func (d *instance) openDecisions() (err error) {
	c := &d.config.Decisions
	if !c.Log {
		return nil
	}
	o := journal.DefaultOptions()
	o.MaxFileBytes, o.MaxFiles = c.FileBytes, c.Files
	o.Stopped = func(err error) {
		d.log.Error().Err(err).Msg("the decision log cannot be written; serving goes on, and writing is tried again: see to it that the state folder has room")
	}
	o.Resumed = func(lost uint64) {
		d.log.Info().Uint64("lost", lost).Msg("the decision log is written again")
	}
	d.decisions, err = journal.Open(d.decisionDir(), o)
	return err
}

// learning returns how the instance is to come by a predictor, with those that may be
// used once the models are known. Serving goes on without one that cannot be read.
func (d *instance) learning(fit FitFunc) learning.Options {
	o := learningOptions(&d.config)
	o.CanFit = d.config.Predictor.Train && fit != nil
	var err error
	if o.File != "" {
		if o.Configured, o.Refused = predictor.ReadFile(o.File); o.Refused != nil {
			d.log.Error().Err(o.Refused).Msg("the configured predictor is refused; batches run one at a time")
		}
	} else if o.Stored, err = d.state.datasets.Predictors(); err != nil {
		d.log.Warn().Err(err).Msg("the stored predictors cannot be read")
	}
	return o
}

// runner returns what runs rounds.
func (u *instance) runner(o *Options, specs []executor.ServiceSpec) (runner, error) {
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
func (u *instance) specs() (specs []executor.ServiceSpec, releases []func(), err error) {
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
func (u *instance) spec(id models.ServiceID, s *config.Service) (spec executor.ServiceSpec, release func(), err error) {
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
func (u *instance) threads(s *config.Service) int {
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
func (u *instance) model(model string) (string, error) {
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

// profiles stores what was measured of each model and gives it back when the
// same model is loaded on the same device.
type profiles interface {
	stored(e *executor.Event) (predictor.Snapshot, bool)
	calibration(f *predictor.File) (predictor.CalibrationSnapshot, bool)
	chose(s config.Service, c *wire.CutChoice)
}

func (d *instance) key(service models.ServiceID, info *wire.Info) []byte {
	return profileKey(d.device, info.Hash, info.ORTVersion, len(info.Operators), d.backend.loop.fleet.share(service))
}

// stored implements profiles.
func (d *instance) stored(e *executor.Event) (predictor.Snapshot, bool) {
	p, ok, err := d.state.profile(d.key(e.Service, e.Info))
	if err != nil {
		d.log.Warn().Err(err).Str("service", d.backend.loop.fleet.name(e.Service)).Msg("the stored profile cannot be read; it is measured again")
	}
	return p, ok
}

// calibrationKey names what a calibration holds for: it speaks of services by
// their position, and what was learned of a model holds for no other that has
// its place, or its name.
func (d *instance) calibrationKey(identity string) []byte {
	key := []byte(identity)
	for i, s := range d.backend.loop.fleet.members {
		if key = append(key, '|'); s == nil {
			continue
		}
		key = append(key, s.config.Name...)
		if m := d.backend.loop.learner.measured(models.ServiceID(i)); m.Operators > 0 {
			key = fmt.Appendf(key, " %s/%d", m.Hash, m.Operators)
		}
	}
	return key
}

// calibration implements profiles.
func (d *instance) calibration(f *predictor.File) (predictor.CalibrationSnapshot, bool) {
	c, ok, err := d.state.calibration(d.calibrationKey(f.Identity()))
	if err != nil {
		d.log.Warn().Err(err).Msg("the stored calibration of the predictor cannot be read; it is learned again")
	}
	return c, ok
}

// saveProfiles stores what was measured of every service that was ready once.
// Of an emulated device nothing was.
func (d *instance) saveProfiles() {
	if d.emulation != nil {
		return
	}
	type profile struct {
		key      []byte
		service  string
		snapshot predictor.Snapshot
	}
	var measured []profile
	var calibration predictor.CalibrationSnapshot
	var calibrated []byte // its key
	d.backend.ask(func(l *loop) {
		calibration = l.predictor.Snapshot()
		for _, s := range l.fleet.served() {
			id := s.service.ID
			info := s.worker.info
			if p, err := l.solo.Snapshot(id); err == nil && info != nil && len(p.Cells) > 0 {
				measured = append(measured, profile{d.key(id, info), s.config.Name, p})
			}
		}
		calibrated = d.calibrationKey(calibration.Predictor)
	})
	for _, p := range measured {
		if err := d.state.saveProfile(p.key, p.snapshot); err != nil {
			d.log.Warn().Err(err).Str("service", p.service).Msg("storing what was measured")
		}
	}
	if calibration.Predictor == "" {
		return
	}
	if err := d.state.saveCalibration(calibrated, calibration); err != nil {
		d.log.Warn().Err(err).Msg("storing how well the predictor does")
	}
}

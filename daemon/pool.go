package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// pool is the devices that services run on, and the loop that schedules them.
type pool struct {
	// config is the one that the daemon was started with.
	config  config.Config
	log     zerolog.Logger
	state   *State
	keeper  *loop.Keeper
	devices []*poolDevice
	backend *loop.Backend

	// recorder is nil without metrics.
	recorder *metrics.Recorder

	// decisions is nil without a decision log.
	decisions *journal.Writer

	// life is done when the daemon closes.
	life context.Context

	// goroutines counts those besides the loop. The daemon waits for them.
	goroutines *sync.WaitGroup
}

// pooled returns the devices of a pool that computes, as copies of one. Each device that is
// on a GPU gets its part.
func pooled(one poolDevice, gpus []*gpu.GPU) (list []*poolDevice) {
	for i, c := range one.config.Pool() {
		u := one
		u.index, u.name = i, c.Name
		if cores := c.CPUs(); len(cores) > 0 {
			u.affinity, u.cores = cores, len(cores)
		}
		for _, g := range gpus {
			if part := g.Part(c.Whole()); part != nil {
				u.part, u.text = part, part.Text
			}
		}
		if u.name != "" {
			u.log = one.log.With().Str("device", u.name).Logger()
		}
		list = append(list, &u)
	}
	return list
}

// emulate returns the devices of an emulated pool. It logs a warning, because clients
// receive zeros.
func emulate(one poolDevice, o *Options) (list []*poolDevice, err error) {
	if o.Offline {
		return nil, ErrEmulated
	}
	read := o.emulation
	// Tests replace the function.
	if read == nil {
		read = newEmulation
	}
	list = pooled(one, nil)
	for i, u := range list {
		c := u.onlyOwn(one.config)
		if u.emulation, err = read(&c); err != nil {
			return nil, err
		}
		u.text = u.emulation.text
		if i > 0 && u.text == list[i-1].text {
			continue
		}
		one.log.Warn().Str("device", u.text).Str("profile", c.DeviceProfile).
			Msg("the device is emulated: nothing is computed, every output is zeros, and only latencies are realistic")
	}
	return list, nil
}

// onlyOwn returns a configuration with only the services on the device, and its profile.
func (u *poolDevice) onlyOwn(c config.Config) config.Config {
	own := c
	own.DeviceProfile = c.Pool()[u.index].Profile
	own.Services = slices.DeleteFunc(slices.Clone(c.Services), func(s config.Service) bool { return !slices.Contains(c.On(s.Name), u.index) })
	return own
}

// Device describes the devices that services run on.
func (p *pool) Device() string {
	var texts []string
	for _, u := range p.devices {
		if !slices.Contains(texts, u.text) {
			texts = append(texts, u.text)
		}
	}
	return strings.Join(texts, "; ")
}

// on returns the devices that a service is on.
func (p *pool) on(c *config.Config, service string) (list []*poolDevice) {
	for _, i := range c.On(service) {
		list = append(list, p.devices[i])
	}
	return list
}

// firstOn returns the first device on a part of a GPU. Shares of a GPU are on the same
// part.
func (p *pool) firstOn(part *gpu.Part) *poolDevice {
	return p.devices[slices.IndexFunc(p.devices, func(u *poolDevice) bool { return u.part == part })]
}

// account creates a ledger for the memory of each part of a GPU. Devices on the same part
// share it.
func (p *pool) account() {
	for _, u := range p.devices {
		switch first := p.firstOn(u.part); {
		case u.part == nil:
		case first == u:
			u.memory = u.part.Ledger()
		default:
			u.memory = first.memory
		}
	}
}

// spread decides by memory on which of its devices each service has room at the start, so
// that the first services do not take all of it. rest are the other devices: they are tried
// afterwards, and a service that does not fit is refused there with the sums.
func (p *pool) spread() (room, rest [][]*poolDevice, err error) {
	var services []planning.Service
	var devices []planning.Device
	// The need is computed for one device on a GPU, because it is the same on all.
	var part *poolDevice
	for _, u := range p.devices {
		memory := math.Inf(1)
		if u.memory != nil {
			memory, part = u.memory.Room(), u
		}
		devices = append(devices, planning.Device{Name: u.name, Memory: memory})
	}
	for i := range p.config.Services {
		s := &p.config.Services[i]
		to := planning.Service{Name: s.Name, Devices: s.On}
		if part != nil {
			path, err := part.model(s.Model)
			if err != nil {
				return nil, nil, fmt.Errorf("service %s: %w", s.Name, err)
			}
			bytes, _, _ := part.needs(path, s, s.Cut) // the refusal will say why
			to.Memory = float64(bytes) / (1 << 20)
		}
		services = append(services, to)
	}
	for i, where := range planning.Greedy(services, devices) {
		var has, not []*poolDevice
		for _, u := range p.on(&p.config, services[i].Name) {
			if slices.Contains(where, u.index) {
				has = append(has, u)
			} else {
				not = append(not, u)
			}
		}
		room, rest = append(room, has), append(rest, not)
	}
	return room, rest, nil
}

// places returns the places of a service on some devices. It reserves GPU memory on each.
func (p *pool) places(id models.ServiceID, on []*poolDevice, s *config.Service) (places []loop.Place, err error) {
	for _, u := range on {
		spec, place, err := u.worker(id, s)
		if err != nil {
			return places, err
		}
		place.Worker = spec
		places = append(places, place)
	}
	return places, nil
}

// openLoop creates the loop and everything of it that can fail.
func (p *pool) openLoop(o *Options) error {
	if err := p.openDecisions(); err != nil {
		return err
	}
	p.account()
	l := loop.Options{
		Log: p.log, Learning: p.learning(o.Fit), Fit: p.fitting(o.Fit), Keeper: p.keeper, Journal: p.decisions, Profiles: p,
		Header: journal.Header{Version: o.Version, Commit: o.Commit, Device: p.Device()}, Life: p.life, Goroutines: p.goroutines,
		Processors: o.Processors,
	}
	if l.Move = o.move; l.Move == nil {
		l.Move = move
	}
	room, rest, err := p.spread()
	if err != nil {
		return err
	}
	specs := make([][]executor.ServiceSpec, len(p.devices))
	l.Places = make([][]loop.Place, len(p.config.Services))
	// Places with room first, so that their memory is reserved before the others are tried.
	for _, devices := range [][][]*poolDevice{room, rest} {
		for i := range p.config.Services {
			places, err := p.places(models.ServiceID(i), devices[i], &p.config.Services[i])
			if err != nil {
				return err
			}
			l.Places[i] = append(l.Places[i], places...)
			for _, place := range places {
				specs[place.Device] = append(specs[place.Device], place.Worker)
			}
		}
	}
	// The loop expects places in the order of the devices, and the executor services in the
	// order of their IDs.
	for _, places := range l.Places {
		slices.SortFunc(places, func(a, b loop.Place) int { return a.Device - b.Device })
	}
	for _, list := range specs {
		slices.SortFunc(list, func(a, b executor.ServiceSpec) int { return int(a.ID - b.ID) })
	}
	for i, u := range p.devices {
		l.Devices = append(l.Devices, u.describe(o, specs[i]))
	}
	if p.config.Metrics {
		p.recorder = metrics.NewRecorder(p.config.Names())
		l.Listeners = append(l.Listeners, p.recorder)
	}
	if o.listener != nil {
		l.Listeners = append(l.Listeners, o.listener)
	}
	p.backend, err = loop.New(p.config, l)
	return err
}

// move moves a batch between the workers of two devices, which must be executors.
func move(number uint64, from, to loop.Workers, batch executor.SpanRequest, planned time.Duration) error {
	return executor.Move(number, from.(*executor.Executor), to.(*executor.Executor), batch, planned)
}

// start starts the loop, then the monitoring of GPUs, then the workers.
func (p *pool) start() error {
	// The loop must run before workers report events to it.
	p.backend.Begin()
	for _, u := range p.devices {
		if u.part != nil && p.firstOn(u.part) == u {
			p.watchGPU(u.part)
		}
	}
	return p.backend.Start()
}

// join starts the workers of a service that is to take requests: as soon as they are ready,
// or, if held is set, only when the caller says so. If it fails, reserved memory is
// released.
func (p *pool) join(ctx context.Context, all *config.Config, c *config.Service, held bool) (*loop.Joining, error) {
	sig, fault, err := checkModel(ctx, c, p.config.Worker.LoadTimeout)
	if of, _ := c.Of(); of != "" && sig != nil && fault == nil {
		// A variant must have the inputs and outputs of those that serve already.
		if front := p.backend.Service([]byte(of)); front != nil && len(front.Variants) > 0 && front.Signature() != nil {
			fault = front.Signature().Differs(sig)
		}
	}
	if err := errors.Join(fault, err); err != nil {
		return nil, err
	}
	places, err := p.places(0, p.on(all, c.Name), c)
	if err == nil && len(places) == 0 && all.Policy == config.Static {
		err = fmt.Errorf("service %s is on no device that it can use without a restart, because policy = %q fixes the shares at the start: restart the daemon", c.Name, config.Static)
	}
	if err == nil && len(places) == 0 {
		err = fmt.Errorf("service %s is on no device: name it in one, and restart the daemon if that device is new", c.Name)
	}
	for _, place := range places {
		err = errors.Join(err, place.Worker.Refused)
	}
	var j *loop.Joining
	if err == nil {
		j, err = p.backend.Admit(c, places, held)
	}
	if err != nil {
		for _, place := range places {
			place.GiveBack()
		}
	}
	return j, err
}

// openDecisions opens the decision log if it is configured.
func (p *pool) openDecisions() (err error) {
	c := &p.config.Decisions
	if !c.Log {
		return nil
	}
	o := journal.DefaultOptions()
	o.MaxFileBytes, o.MaxFiles = c.FileBytes, c.Files
	o.Stopped = func(err error) {
		p.log.Error().Err(err).Msg("writing the decision log failed and is retried; serving continues: free space in the state folder")
	}
	o.Resumed = func(lost uint64) {
		p.log.Info().Uint64("lost", lost).Msg("writing the decision log resumed")
	}
	p.decisions, err = journal.Open(p.config.StateDir, o)
	return err
}

// learning returns the options for obtaining a predictor, including the predictors that may
// be used. A predictor that cannot be read does not keep the daemon from serving.
func (p *pool) learning(fit loop.FitFunc) learning.Options {
	o := learningOptions(&p.config)
	o.CanFit = p.config.Predictor.Train && fit != nil
	var err error
	if o.File != "" {
		if o.Configured, o.Refused = predictor.ReadFile(o.File); o.Refused != nil {
			p.log.Error().Err(o.Refused).Msg("the configured predictor was rejected; batches run one at a time")
		}
	} else if o.Stored, err = p.state.datasets.Predictors(); err != nil {
		p.log.Warn().Err(err).Msg("reading the stored predictors failed")
	}
	return o
}

// learningOptions returns the part of the options that the configuration determines.
func learningOptions(c *config.Config) learning.Options {
	p := &c.Profile
	return learning.Options{
		Policy: c.Policy, File: c.Predictor.File,
		OnStart: p.OnStart, Limit: p.Time, Groups: p.Groups, Repeats: p.Repeats, Spans: p.Spans, Seed: 1,
	}
}

// Stored serves [loop.Options].
func (p *pool) Stored(kind, key string, value any) bool {
	return p.state.stored(p.log, kind, key, value)
}

// stored is load, but logs an error.
func (s *State) stored(log zerolog.Logger, kind, key string, value any) bool {
	ok, err := s.load(kind, key, value)
	if err != nil {
		log.Warn().Err(err).Str("of", kind).Msg("stored measurements cannot be read; they are measured again")
	}
	return ok
}

// ChoseCut serves [loop.Options].
func (p *pool) ChoseCut(s config.Service, at loop.Place, c *wire.CutChoice) {
	key := p.devices[at.Device].cutKey(c.Hash, at.Share, s.MaxBatch)
	p.keeper.Keep("storing the cut failed", func(*training.Store) error { return p.state.save(cutChoices, key, c) })
}

// fitting returns a function that fits a predictor after storing the isolated latencies that
// go with it, so that readers of the state file find both.
func (p *pool) fitting(fit loop.FitFunc) loop.FitFunc {
	if fit == nil {
		return nil
	}
	return func(ctx context.Context, d *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error) {
		p.saveProfiles()
		return fit(ctx, d, operators)
	}
}

// saveProfiles stores what was measured of every service that has been ready.
func (p *pool) saveProfiles() {
	defer p.backend.Broaden()()
	solo, calibrations := p.backend.Learned()
	for key, known := range solo {
		if err := p.state.save(loop.SoloProfiles, key, known); err != nil {
			p.log.Warn().Err(err).Str("of", key).Msg("storing a measurement failed")
		}
	}
	if len(calibrations) == 0 {
		return
	}
	if err := p.state.saveCalibrations(calibrations); err != nil {
		p.log.Warn().Err(err).Msg("storing the accuracy of predictors failed")
	}
}

// EmulatedDevice describes the devices that the services of a configuration would be
// emulated on. It fails if the profile is invalid or lacks one of their models.
func EmulatedDevice(c config.Config) (string, error) {
	list, err := emulate(poolDevice{config: config.Divided(c.Expanded(), c.Policy), log: zerolog.Nop()}, &Options{})
	return (&pool{devices: list}).Device(), err
}

// PlanGPU describes what a daemon with this configuration would do with a GPU, and how much
// of its memory each service would have. It changes nothing, except that it builds models
// of the zoo.
func PlanGPU(c config.Config, o Options) (text string, err error) {
	c = c.Expanded()
	gpus, err := gpu.Choose(context.Background(), c, o.GPU, o.Log)
	if err != nil {
		return "", err
	}
	if len(gpus) == 0 {
		return "no GPU is used\n", nil
	}
	var b strings.Builder
	for _, g := range gpus {
		defer func() { err = errors.Join(err, g.Give()) }()
		b.WriteString(g.String())
	}
	c = config.Divided(c, c.Policy)
	p := &pool{config: c, devices: pooled(poolDevice{config: c, log: o.Log, life: context.Background()}, gpus)}
	p.account()
	room, rest, err := p.spread()
	if err != nil {
		return "", err
	}
	refusals := make([]string, len(p.devices))
	for _, devices := range [][][]*poolDevice{room, rest} {
		for i, list := range devices {
			s := &c.Services[i]
			for _, u := range list {
				path, _ := u.model(s.Model) // spread has checked it
				if _, refused := u.admit(path, s, s.Cut, u.memory); refused != nil {
					refusals[p.firstOn(u.part).index] += fmt.Sprintf("  rejected: %v\n", refused)
				}
			}
		}
	}
	for _, u := range p.devices {
		if u.memory != nil && p.firstOn(u.part) == u { // shares of a GPU have one ledger
			b.WriteString(u.memory.String() + refusals[u.index])
		}
	}
	return b.String(), nil
}

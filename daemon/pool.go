package daemon

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/learning"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/models"
	"github.com/overlapd/overlapd/planning"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/segments/wire"
	"github.com/overlapd/overlapd/training"
)

// pool is the devices that services run on.
type pool []*poolDevice

// onNodes returns a configuration whose only device is the CPU with one device for each NUMA node, so
// that the cores of a batch lie on one, with the memory of its worker.
func onNodes(c config.Config, nodes [][]int) config.Config {
	if len(nodes) < 2 || len(c.Devices) > 0 || c.Device != config.DeviceCPU || !divides(&c) {
		return c
	}
	for i, cores := range nodes {
		list := strings.Trim(strings.ReplaceAll(fmt.Sprint(cores), " ", ","), "[]")
		c.Devices = append(c.Devices, config.Device{Name: fmt.Sprintf("node%d", i), Kind: config.DeviceCPU, Cores: list})
	}
	return c
}

// cores returns on how many cores workers may run.
func (o *Options) cores() int { return len(slices.Concat(o.Nodes...)) }

// pooled returns the devices of a pool that computes, as copies of one. Each device that is
// on a GPU gets its part.
func pooled(one poolDevice, gpus []*gpu.GPU) (list pool) {
	for i, c := range one.config.Pool() {
		u := one
		u.index, u.name = i, c.Name
		if cores := c.CPUs(); len(cores) > 0 {
			u.affinity, u.cpus, u.cores = cores, cores, len(cores)
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
func emulate(one poolDevice, o *Options) (list pool, err error) {
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

// text describes the devices for people.
func (p pool) text() string {
	var texts []string
	for _, u := range p {
		if !slices.Contains(texts, u.text) {
			texts = append(texts, u.text)
		}
	}
	return strings.Join(texts, "; ")
}

// on returns the devices that a service is on.
func (p pool) on(c *config.Config, service string) (list pool) {
	for _, i := range c.On(service) {
		list = append(list, p[i])
	}
	return list
}

// firstOn returns the first device on a part of a GPU. Shares of a GPU are on the same
// part.
func (p pool) firstOn(part *gpu.Part) *poolDevice {
	return p[slices.IndexFunc(p, func(u *poolDevice) bool { return u.part == part })]
}

// account creates a ledger for the memory of each part of a GPU. Devices on the same part
// share it.
func (p pool) account() {
	for _, u := range p {
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
func (p pool) spread(c *config.Config) (room, rest []pool, err error) {
	var services []planning.Service
	var devices []planning.Device
	// The need is computed for one device on a GPU, because it is the same on all.
	var part *poolDevice
	for _, u := range p {
		memory := math.Inf(1)
		if u.memory != nil {
			memory, part = u.memory.Room(), u
		}
		devices = append(devices, planning.Device{Name: u.name, Memory: memory})
	}
	for i := range c.Services {
		s := &c.Services[i]
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
		var has, not pool
		for _, u := range p.on(c, services[i].Name) {
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

// places returns the places of a service on the devices. It reserves GPU memory on each.
func (p pool) places(id models.ServiceID, s *config.Service) (places []loop.Place, err error) {
	for _, u := range p {
		place, err := u.worker(id, s)
		if err != nil {
			return places, err
		}
		places = append(places, place)
	}
	return places, nil
}

// placeAll returns the places of each service at the start, in the order of the devices, and
// the workers of each device, in the order of their IDs.
func (p pool) placeAll(c *config.Config) (places [][]loop.Place, specs [][]executor.ServiceSpec, err error) {
	room, rest, err := p.spread(c)
	if err != nil {
		return nil, nil, err
	}
	specs = make([][]executor.ServiceSpec, len(p))
	places = make([][]loop.Place, len(c.Services))
	// Places with room first, so that their memory is reserved before the others are tried.
	for _, devices := range [][]pool{room, rest} {
		for i := range c.Services {
			on, err := devices[i].places(models.ServiceID(i), &c.Services[i])
			if err != nil {
				return nil, nil, err
			}
			places[i] = append(places[i], on...)
			for _, at := range on {
				specs[at.Device] = append(specs[at.Device], at.Worker)
			}
		}
	}
	for _, on := range places {
		slices.SortFunc(on, func(a, b loop.Place) int { return a.Device - b.Device })
	}
	for _, list := range specs {
		slices.SortFunc(list, func(a, b executor.ServiceSpec) int { return int(a.ID - b.ID) })
	}
	return places, specs, nil
}

// profiles has what earlier daemons measured on these devices, and stores what this one
// measures.
type profiles struct {
	state   *State
	keeper  *loop.Keeper
	devices pool
	log     zerolog.Logger
}

// learning returns the options for obtaining a predictor, including the predictors that may
// be used. A predictor that cannot be read does not keep the daemon from serving.
func (p *profiles) learning(c *config.Config, fit loop.FitFunc) learning.Options {
	o := learningOptions(c)
	o.CanFit = c.Predictor.Train && fit != nil
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
func (p *profiles) Stored(kind, key string, value any) bool {
	return p.state.stored(p.log, kind, key, value)
}

// ChoseCut serves [loop.Options].
func (p *profiles) ChoseCut(s config.Service, at loop.Place, c *wire.CutChoice) {
	key := p.devices[at.Device].cutKey(c.Hash, at.Share, s.MaxBatch)
	p.keeper.Keep("storing the cut failed", func(*training.Store) error { return p.state.save(cutChoices, key, c) })
}

// EmulatedDevice describes the devices that the services of a configuration would be
// emulated on. It fails if the profile is invalid or lacks one of their models.
func EmulatedDevice(c config.Config) (string, error) {
	list, err := emulate(poolDevice{config: config.Divided(c.Expanded(), c.Policy), log: zerolog.Nop()}, &Options{})
	return list.text(), err
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
	p := pooled(poolDevice{config: c, log: o.Log, life: context.Background()}, gpus)
	p.account()
	room, rest, err := p.spread(&c)
	if err != nil {
		return "", err
	}
	refusals := make([]string, len(p))
	for _, devices := range [][]pool{room, rest} {
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
	for _, u := range p {
		if u.memory != nil && p.firstOn(u.part) == u { // shares of a GPU have one ledger
			b.WriteString(u.memory.String() + refusals[u.index])
		}
	}
	return b.String(), nil
}

package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/timeline"
	"github.com/overlapd/overlapd/overlap/journal"
)

// unit is a scheduler with the services, the workers and the device that it
// decides about. A daemon has one, or one for each instance of a GPU that is
// divided: what runs on one instance takes nothing from another.
type unit struct {
	config    Config // with its own services only
	log       zerolog.Logger
	state     *state
	keeper    *keeper
	backend   *backend
	threads   []int // of each service
	device    string
	emulation *emulation // nil for a device that computes
	part      *gpu.Part  // nil without a GPU
	dir       string     // of the decision log, in the state folder
	decisions *journal.Writer
}

// split makes a unit for each part of a GPU that is divided. All of them share
// the state file.
func (d *Daemon) split(parts []*gpu.Part) {
	if len(parts) == 1 {
		return
	}
	first := *d.unit
	d.units = nil
	for i, p := range parts {
		u := first
		u.part, u.device = p, p.Text
		u.config.Services = slices.DeleteFunc(slices.Clone(first.config.Services), func(s ServiceConfig) bool {
			return !slices.Contains(p.Services, s.Name)
		})
		u.dir = fmt.Sprintf("instance-%d", i)
		u.log = first.log.With().Str("instance", p.UUID).Logger()
		d.units = append(d.units, &u)
	}
	d.unit = d.units[0]
}

// open makes everything of a unit that can be refused.
func (u *unit) open(d *Daemon, o *Options, life context.Context) error {
	specs, err := u.specs(*o)
	if err != nil {
		return err
	}
	b := newBackend(u.config, u.log)
	u.backend = b
	b.device, b.threads, b.keeper, b.emulation = u.device, u.threads, u.keeper, u.emulation
	b.goroutines, b.life = &d.goroutines, life
	b.part, b.percentages = u.part, u.percentages()
	if u.part != nil {
		b.gpus = gpuReadings(u.part)
	}
	if u.emulation == nil {
		b.profiles = u
	} else {
		u.emulation.limit(b.services)
	}
	if b.exec, err = u.runner(o, specs); err != nil {
		return err
	}
	if err := u.openDecisions(); err != nil {
		return err
	}
	header := journal.Header{Version: o.Version, Commit: o.Commit, Device: u.device, Epoch: b.epoch}
	if err := b.newLoop(u.config, u.decisions, header); err != nil {
		return err
	}
	u.predictors(o.Fit)
	return nil
}

// start lets the unit decide, and starts its workers.
func (u *unit) start() error {
	b := u.backend
	b.running = true
	b.goroutines.Go(b.loop.run)
	b.watchGPU()
	return b.exec.Start(context.Background())
}

// stop ends the workers, and then the scheduler goroutine.
func (u *unit) stop() error {
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

// decisionDir is where the decision log lies. Each unit has its own.
func (u *unit) decisionDir() string { return filepath.Join(u.config.StateDir, u.dir) }

// each does something with every unit and joins the errors.
func (d *Daemon) each(f func(*unit) error) error {
	var errs []error
	for _, u := range d.units {
		errs = append(errs, f(u))
	}
	return errors.Join(errs...)
}

// saveAll stores what was measured of every service.
func (d *Daemon) saveAll() {
	for _, u := range d.units {
		u.saveProfiles()
	}
}

// standing is how all units do together: as alive as the one that does worst.
func (d *Daemon) standing() standing {
	all := d.backend.standing()
	for _, u := range d.units[1:] {
		s := u.backend.standing()
		all.beat = min(all.beat, s.beat)
		all.services += s.services
		all.ready += s.ready
		all.givenUp = append(all.givenUp, s.givenUp...)
	}
	return all
}

// front is the Backend that the daemon's endpoints speak to.
func (d *Daemon) front() Backend {
	if len(d.units) == 1 {
		return d.backend
	}
	f := &front{of: map[*Service]*backend{}, names: map[string]*Service{}}
	for _, u := range d.units {
		f.backends = append(f.backends, u.backend)
		for _, s := range u.backend.services {
			f.of[s], f.names[s.Name] = u.backend, s
		}
	}
	for _, s := range d.config.Services {
		f.services = append(f.services, f.names[s.Name])
	}
	return f
}

// front hands each call to the unit that has its service.
type front struct {
	backends []*backend
	services []*Service // in the order of the configuration
	names    map[string]*Service
	of       map[*Service]*backend
}

func (f *front) Services() []*Service { return f.services }

func (f *front) Service(name string) *Service { return f.names[name] }

func (f *front) Alloc(s *Service, bytes int64) (Memory, error) { return f.of[s].Alloc(s, bytes) }

func (f *front) Free(s *Service, m Memory) { f.of[s].Free(s, m) }

func (f *front) Submit(c *Call) error { return f.of[c.Service].Submit(c) }

func (f *front) Cancel(c *Call) { f.of[c.Service].Cancel(c) }

func (f *front) Release(c *Call) { f.of[c.Service].Release(c) }

// Live implements Backend: one scheduler that hangs is a daemon that does.
func (f *front) Live() bool {
	return !slices.ContainsFunc(f.backends, func(b *backend) bool { return !b.Live() })
}

func (f *front) Ready() bool {
	return !slices.ContainsFunc(f.backends, func(b *backend) bool { return !b.Ready() })
}

// Overview implements Backend: sums over the instances, and each of them.
func (f *front) Overview() (Overview, bool) {
	var all Overview
	for i, b := range f.backends {
		o, ok := b.Overview()
		if !ok {
			return Overview{}, false
		}
		if i == 0 {
			all = o
			all.Services = nil
			all.Instances = []Overview{o}
			all.Services = append(all.Services, o.Services...)
			continue
		}
		all.add(&o)
	}
	order := func(o ServiceOverview) int {
		return slices.IndexFunc(f.services, func(s *Service) bool { return s.Name == o.Name })
	}
	slices.SortFunc(all.Services, func(a, b ServiceOverview) int { return order(a) - order(b) })
	return all, true
}

// add takes in what another instance did. The predictor is that of the first.
func (o *Overview) add(other *Overview) {
	o.Device = strings.Join([]string{o.Device, other.Device}, "; ")
	o.UpSeconds = max(o.UpSeconds, other.UpSeconds)
	o.Rounds += other.Rounds
	o.BusySeconds += other.BusySeconds
	o.Plans.Made += other.Plans.Made
	o.Plans.Kept += other.Plans.Kept
	o.Plans.Overturned += other.Plans.Overturned
	o.GPU = append(o.GPU[:len(o.GPU):len(o.GPU)], other.GPU...)
	o.Services = append(o.Services, other.Services...)
	o.Instances = append(o.Instances, *other)
}

// Timelines implements Backend.
func (f *front) Timelines() (all []*timeline.Ring) {
	for _, b := range f.backends {
		all = append(all, b.timeline)
	}
	return all
}

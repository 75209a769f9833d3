package daemon

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/observe/timeline"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/overlap/journal"
)

// unit is a scheduler with the services, the workers and the device that it
// decides about. A daemon has one, or one for each instance of a GPU that is
// divided: what runs on one instance takes nothing from another.
type unit struct {
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
		u.config.Services = slices.DeleteFunc(slices.Clone(first.config.Services), func(s config.Service) bool {
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
	b.goroutines, b.life = &d.goroutines, life
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
	for i, s := range b.loop.fleet.slots {
		u.furnish(s)
		s.release = releases[i]
	}
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

// face is what the daemon's endpoints ask.
type face interface {
	query.Host
	http.Host
}

// front returns what the daemon's endpoints speak to.
func (d *Daemon) front() face {
	if len(d.units) == 1 {
		return d.backend
	}
	f := new(front)
	for _, u := range d.units {
		f.backends = append(f.backends, u.backend)
	}
	f.gather(d.config.Services)
	return f
}

// gather publishes the services of all units in an order.
func (f *front) gather(order []config.Service) {
	var list []*query.Service
	for i := range order {
		for _, b := range f.backends {
			if s := b.Service([]byte(order[i].Name)); s != nil {
				list = append(list, s)
			}
		}
	}
	f.Publish(list)
}

// front hands each call to the unit that has its service.
type front struct {
	query.Registry
	backends []*backend
}

// Service implements face. Its unit knows first what has taken the place of a
// service: until that is gathered, the unit is asked.
func (f *front) Service(name []byte) *query.Service {
	s := f.Registry.Service(name)
	if s != nil && s.Retired() {
		return s.Backend.(*backend).Service(name)
	}
	return s
}

// Live implements face: one scheduler that hangs is a daemon that does.
func (f *front) Live() bool {
	return !slices.ContainsFunc(f.backends, func(b *backend) bool { return !b.Live() })
}

func (f *front) Ready() bool {
	return !slices.ContainsFunc(f.backends, func(b *backend) bool { return !b.Ready() })
}

// Status implements face.
func (f *front) Status() (*status.Status, bool) {
	parts := make([]*status.Status, len(f.backends))
	for i, b := range f.backends {
		s, ok := b.Status()
		if !ok {
			return nil, false
		}
		parts[i] = s
	}
	var names []string
	for _, s := range f.Services() {
		names = append(names, s.Name)
	}
	return status.Join(parts, names), true
}

// Timelines implements face.
func (f *front) Timelines() (all []*timeline.Ring) {
	for _, b := range f.backends {
		all = append(all, b.timeline)
	}
	return all
}

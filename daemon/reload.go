package daemon

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
)

var (
	// ErrReloading is returned when a configuration is to take effect while
	// another one does.
	ErrReloading = errors.New("another reload is in progress: wait until it has ended")

	// ErrStopping is returned when a daemon that stops is to reload.
	ErrStopping = errors.New("the daemon stops: start it again with the new configuration")
)

// Reload lets a configuration take effect while queries are served. It must be
// valid. Services are taken away first, then changed, then added and replaced,
// one after another: a new worker loads beside the old one, which serves until
// the new one is ready, and goes on if that fails. What needs a restart is told
// and stays as it was. Tokens and certificates are read again. Progress may be
// nil.
//
// The error is why a reload did not begin or was cut short; what is in Reloaded
// is done nevertheless. A service that cannot be loaded is no error, but told in
// Failed.
func (d *Daemon) Reload(ctx context.Context, next config.Config, progress func(ReloadStep)) (*Reloaded, error) {
	if d.life.Err() != nil || d.backend.draining.Load() {
		return nil, ErrStopping
	}
	if !d.reloading.TryLock() {
		return nil, ErrReloading
	}
	defer d.reloading.Unlock()
	if d.emulation != nil && next.Emulated() {
		if err := d.emulation.check(&next); err != nil {
			return nil, err
		}
	}
	if err := d.access.Reload(); err != nil {
		return nil, err
	}
	if progress == nil {
		progress = func(ReloadStep) {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.life, func() { cancel(ErrStopping) })()
	old := d.Config()
	changes := config.Diff(old, next, func(name string) bool { return ctx.Err() == nil && d.rewritten(name) })
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	r := &reload{
		Daemon: d, ctx: ctx, next: config.Applied(old, next), progress: progress,
		done: Reloaded{Changes: changes, Failed: map[string]string{}},
	}
	began := time.Now()
	err := r.run()
	r.done.Took = time.Since(began)
	return &r.done, err
}

// Config returns the configuration that holds now.
func (d *Daemon) Config() config.Config {
	d.configured.Lock()
	defer d.configured.Unlock()
	return d.config
}

// configure changes the configuration that holds. Its lists are not to be
// written to: others may read them.
func (d *Daemon) configure(change func(*config.Config)) {
	d.configured.Lock()
	defer d.configured.Unlock()
	change(&d.config)
}

// rewritten reports whether the model file of a service is not the one that
// its worker has loaded.
func (d *Daemon) rewritten(name string) bool {
	s := d.face.Service([]byte(name))
	if s == nil || d.emulation != nil || d.life.Err() != nil { // what stops, reloads nothing
		return false
	}
	c := d.Config()
	sig, of := s.Signature(), c.Service(name)
	if sig == nil {
		return s.GivenUp() // no file was ever loaded: whatever is there now is another
	}
	return of != nil && rewritten(of.Model, sig.Info.Hash)
}

// reload is one reload on its way.
type reload struct {
	*Daemon
	ctx      context.Context
	next     config.Config // without what needs a restart
	progress func(ReloadStep)
	done     Reloaded
}

func (r *reload) run() error {
	r.configure(func(c *config.Config) { c.LogLevel, c.DrainTimeout = r.next.LogLevel, r.next.DrainTimeout })
	if level, err := zerolog.ParseLevel(r.next.LogLevel); err == nil {
		zerolog.SetGlobalLevel(level)
	}
	if err := r.tell(func(l *loop) { l.order = r.next.Names() }); err != nil {
		return err
	}
	if err := r.remove(); err != nil {
		return err
	}
	for _, name := range r.done.Changed {
		if err := r.change(name); err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(r.done.Added, r.done.Replaced) {
		if err := r.load(name); err != nil {
			return err
		}
	}
	return r.tell((*loop).publishServices)
}

// tell runs f in the loop of every unit.
func (r *reload) tell(f func(*loop)) error {
	for _, u := range r.units {
		if !u.backend.ask(f) {
			return ErrStopping
		}
	}
	r.gather()
	return nil
}

// gather lets the endpoints see what the units have published.
func (r *reload) gather() {
	if f, ok := r.face.(*front); ok {
		f.gather(r.next.Services)
	}
}

// unitOf returns the unit that has a service, or where a new one has its place;
// nil if that is nowhere.
func (r *reload) unitOf(name string) *unit {
	for _, u := range r.units {
		if u.backend.Service([]byte(name)) != nil {
			return u
		}
	}
	if len(r.units) == 1 {
		return r.unit
	}
	if i := r.next.Place(name); i >= 0 && i < len(r.units) {
		return r.units[i]
	}
	return nil
}

// holds notes in the configuration what a service has become. It keeps the
// order of the new configuration, and drops what that does not have.
func (r *reload) holds(name string) {
	r.configure(func(c *config.Config) {
		before := c.Services
		c.Services = nil
		for i := range r.next.Services {
			s := &r.next.Services[i]
			at := slices.IndexFunc(before, func(b config.Service) bool { return b.Name == s.Name })
			switch {
			case s.Name == name:
				c.Services = append(c.Services, *s)
			case at >= 0:
				c.Services = append(c.Services, before[at])
			}
		}
		c.MIG.Instances = r.next.MIG.Instances
	})
}

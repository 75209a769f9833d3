package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/internal/textfile"
)

var (
	// ErrReloading is returned while another reload is running.
	ErrReloading = errors.New("another reload is in progress: wait until it has ended")

	// ErrStopping is returned when the daemon is stopping.
	ErrStopping = loop.ErrEnded
)

// Reload applies a valid configuration while queries are served. Services are removed
// first, then changed, then added and replaced, one after another: a new worker loads
// alongside the old one, which serves until the new one is ready, and continues if that
// fails. A service that gains or loses variants is replaced last, in one step. A service
// that failed permanently is started again. Changes that need a restart are not applied but
// listed. Tokens and certificates are read again. progress may be nil.
//
// The error says why the reload did not begin or was interrupted; what Reloaded lists was
// done nevertheless. A service that cannot be loaded is not an error but is listed in
// Failed.
func (d *Daemon) Reload(ctx context.Context, next config.Config, progress func(config.Step)) (*config.Reloaded, error) {
	if d.life.Err() != nil || d.backend.Draining() {
		return nil, ErrStopping
	}
	if !d.reloading.TryLock() {
		return nil, ErrReloading
	}
	defer d.reloading.Unlock()
	// Loading models needs more processors than scheduling.
	defer d.backend.Broaden()()
	old := d.Config()
	// The policy cannot change without a restart, so the old one divides.
	next = config.Divided(next.Expanded(), old.Policy)
	applied := config.Applied(old, next)
	for _, u := range d.devices {
		if own := u.onlyOwn(applied); u.emulation != nil && next.Emulated() {
			if err := u.emulation.check(&own); err != nil {
				return nil, err
			}
		}
	}
	if progress == nil {
		progress = func(config.Step) {}
	}
	// A reload ends when the daemon stops, with ErrStopping as its cause.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(d.life, func() { cancel(ErrStopping) })()
	policies := func() (struct{}, error) { return struct{}{}, d.checkSelection(&applied) }
	if _, err := textfile.Within(ctx, "policies", policies); err != nil {
		return nil, err
	}
	changes, err := d.read(ctx, old, next)
	if err != nil {
		return nil, err
	}
	changes.Failed = map[string]string{}
	r := &reload{Daemon: d, ctx: ctx, next: applied, progress: progress, done: changes}
	began := time.Now()
	err = r.run()
	r.done.Took = time.Since(began)
	return &r.done, err
}

// read reads all files that a reload compares with those in use, and returns what the new
// configuration changes. If a file system does not respond in time, the reload fails before
// it has changed anything.
func (d *Daemon) read(ctx context.Context, old, next config.Config) (config.Reloaded, error) {
	access := func() (struct{}, error) { return struct{}{}, d.access.Reload() }
	if _, err := textfile.Within(ctx, "tokens and certificates", access); err != nil {
		return config.Reloaded{}, err
	}
	var hangs error
	changes := config.Diff(old, next, func(name string) bool {
		if hangs != nil || ctx.Err() != nil {
			return false
		}
		changed, err := d.rewritten(ctx, &old, name)
		if errors.Is(err, context.DeadlineExceeded) {
			hangs = fmt.Errorf("service %s: %w", name, err)
		}
		return changed
	}, func(name string) bool {
		s := d.backend.Running(name)
		return s != nil && s.GivenUp.Load()
	})
	return changes, cmp.Or(context.Cause(ctx), hangs)
}

// rewritten reports whether the model file of a service has changed since its worker loaded
// it.
func (d *Daemon) rewritten(ctx context.Context, c *config.Config, name string) (bool, error) {
	s := d.backend.Running(name)
	if s == nil || d.devices[0].emulation != nil {
		return false, nil
	}
	sig, of := s.Signature(), c.Service(name)
	if sig == nil || of == nil { // nothing was ever loaded
		return false, nil
	}
	return rewritten(ctx, of.Model, sig.Info.Hash, c.Worker.LoadTimeout)
}

// reload is a running reload.
type reload struct {
	*Daemon
	ctx context.Context

	// next is the new configuration without what needs a restart.
	next     config.Config
	progress func(config.Step)
	done     config.Reloaded
}

// run applies the changes in the order that Reload describes.
func (r *reload) run() error {
	r.configure(func(c *config.Config) {
		c.LogLevel, c.DrainTimeout, c.Plan = r.next.LogLevel, r.next.DrainTimeout, r.next.Plan
	})
	if level, err := zerolog.ParseLevel(r.next.LogLevel); err == nil {
		zerolog.SetGlobalLevel(level)
	}
	if !r.backend.Order(r.next.Names()) {
		return ErrStopping
	}
	successions := r.successions()
	if err := r.remove(successions); err != nil {
		return err
	}
	for _, name := range slices.Concat(r.done.Changed, r.done.Moved) {
		if err := r.change(name); err != nil {
			return err
		}
	}
	for _, name := range slices.Concat(r.done.Added, r.done.Replaced, r.done.Retried) {
		if slices.ContainsFunc(successions, func(s succession) bool { return slices.Contains(s.next, name) }) {
			continue
		}
		_, fault, err := r.load(name, false)
		if r.ended(name, fault); err != nil {
			return err
		}
	}
	for _, s := range successions {
		if err := r.succeed(s); err != nil {
			return err
		}
	}
	return nil
}

// succession is services that replace others of the same name as one: with variants in
// place of one without, the reverse, or with other variants.
type succession struct{ old, next []string }

// successions returns the added and removed services that clients see as one service. They
// share the name before the first slash.
func (r *reload) successions() (all []succession) {
	of := func(name string) string { s, _, _ := strings.Cut(name, "/"); return s }
	named := func(names []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return of(n) != name })
	}
	// All services of the name must be replaced: otherwise it is a plain addition.
	now := r.Config()
	for _, name := range r.done.Added {
		s := succession{named(r.done.Removed, of(name)), named(r.done.Added, of(name))}
		if s.next[0] == name && len(s.old) > 0 && len(s.old) == len(named(now.Names(), of(name))) {
			all = append(all, s)
		}
	}
	return all
}

// succeed loads services and then switches to them in one step. If one of them cannot be
// loaded, the old services continue.
func (r *reload) succeed(s succession) (err error) {
	var joined []*loop.Joining
	var fault error
	for _, name := range s.next {
		var j *loop.Joining
		if j, fault, err = r.load(name, true); fault != nil {
			fault = fmt.Errorf("%s could not be loaded: %w", name, fault)
			break
		}
		r.progress(config.Step{Service: name, State: config.StepSwitch})
		joined = append(joined, j)
	}
	if fault == nil {
		fault = r.backend.Replace(joined, s.old)
	}
	if fault == nil {
		r.holds(slices.Concat(s.old, s.next)...)
	}
	for _, j := range joined {
		// The new workers that have loaded must not stay around unused.
		if fault != nil {
			r.backend.Withdraw(j, fault)
		}
	}
	for _, name := range slices.Concat(s.next, s.old) {
		r.ended(name, fault)
	}
	if errors.Is(fault, ErrStopping) {
		return fault
	}
	return err
}

// moved returns the new places of a service. Existing workers are kept.
func (r *reload) moved(s *config.Service) (places []loop.Place, err error) {
	old := r.Config()
	was := r.on(&old, s.Name)
	for _, u := range r.on(&r.next, s.Name) {
		place := u.placeOf(s)
		if !slices.Contains(was, u) {
			var spec executor.ServiceSpec
			if spec, place, err = u.worker(0, s); err != nil {
				return nil, err
			}
			place.Worker = spec
		}
		places = append(places, place)
	}
	return places, nil
}

// holds updates the configuration in effect with the new state of services. It keeps the
// order of the new configuration. Services that it does not have stay at the end until they
// are gone.
func (r *reload) holds(names ...string) {
	r.configure(func(c *config.Config) {
		var services []config.Service
		for _, s := range r.next.Services {
			if before := c.Service(s.Name); slices.Contains(names, s.Name) {
				services = append(services, s)
			} else if before != nil {
				services = append(services, *before)
			}
		}
		for _, s := range c.Services {
			if r.next.Service(s.Name) == nil && !slices.Contains(names, s.Name) {
				services = append(services, s)
			}
		}
		c.Services = services
	})
}

// removalTimeout is how long a reload waits for a removed service to answer its accepted
// requests before it loads others in its place. Requests that are still arriving delay it
// as well. The service is removed in any case.
const removalTimeout = 30 * time.Second

// errCutShort is why a service is not loaded when a reload is interrupted.
var errCutShort = errors.New("the reload was interrupted")

// remove removes services, except those that others replace, and waits until they are gone.
func (r *reload) remove(successions []succession) error {
	removed := slices.DeleteFunc(slices.Clone(r.done.Removed), func(name string) bool {
		return slices.ContainsFunc(successions, func(s succession) bool { return slices.Contains(s.old, name) })
	})
	gone := make([]chan struct{}, len(removed))
	for i, name := range removed {
		gone[i] = make(chan struct{})
		if !r.backend.TakeAway(name, gone[i]) {
			return ErrStopping
		}
		r.holds(name)
	}
	limit, cancel := context.WithTimeout(r.ctx, removalTimeout)
	defer cancel()
	for i, name := range removed {
		select {
		case <-gone[i]:
		case <-limit.Done():
		}
		r.progress(config.Step{Service: name, State: config.StepDone})
	}
	return context.Cause(r.ctx)
}

// change applies new targets or devices to a service without replacing its model.
func (r *reload) change(name string) error {
	next := r.next.Service(name)
	places, err := r.moved(next)
	if err == nil {
		err = r.backend.Retarget(next, places)
	}
	if errors.Is(err, ErrStopping) {
		return err
	}
	r.ended(name, err)
	return nil
}

// load starts the workers of a service and waits until it has joined. fault says why it has
// not. cut says why the reload must be interrupted.
func (r *reload) load(name string, held bool) (j *loop.Joining, fault, cut error) {
	r.progress(config.Step{Service: name, State: config.StepLoading})
	j, fault = r.join(r.ctx, &r.next, r.next.Service(name), held)
	if errors.Is(fault, context.DeadlineExceeded) {
		cut = fmt.Errorf("service %s: %w", name, fault) // the next service may wait for the same file system
	}
	if fault == nil {
		fault, cut = r.await(j)
	}
	return j, fault, cut
}

// await waits until a service has joined, or fails to, or the reload is interrupted.
func (r *reload) await(j *loop.Joining) (fault, cut error) {
	for {
		select {
		case step := <-j.News:
			r.progress(step)
		case fault = <-j.Ready:
			for len(j.News) > 0 { // show progress before the outcome
				r.progress(<-j.News)
			}
			return fault, nil
		case <-r.ctx.Done():
			fault = errCutShort
			if r.backend.Withdraw(j, errCutShort) {
				fault = <-j.Ready // it may have joined before
			}
			return fault, context.Cause(r.ctx)
		}
	}
}

// ended records the outcome of a service. A service that cannot be loaded does not end the
// reload.
func (r *reload) ended(name string, err error) {
	if err != nil {
		r.done.Failed[name] = err.Error()
		if old := r.backend.Running(name); old != nil && old.GivenUp.Load() {
			r.done.Down = append(r.done.Down, name)
		}
		r.progress(config.Step{Service: name, State: config.StepFailed})
		return
	}
	r.holds(name)
	r.progress(config.Step{Service: name, State: config.StepDone})
}

// Errors of Restart.
var (
	// ErrNoService is returned when there is no service of that name.
	ErrNoService = errors.New("there is no such service; overlapd status lists them")

	// ErrNotGivenUp is returned for a service that has not failed permanently, so that
	// there is nothing to restart.
	ErrNotGivenUp = loop.ErrNotGivenUp
)

// Restart starts a service again that has failed permanently, because its worker died too
// often or did not fit on its GPU. With variants, it restarts each that has failed. It does
// not wait for the worker.
func (d *Daemon) Restart(service string) error {
	s := d.backend.Running(service)
	if s == nil {
		return fmt.Errorf("service %q: %w", service, ErrNoService)
	}
	var failed error
	restarted := false
	for _, one := range s.Each() {
		if err := d.backend.Restart(one); err == nil {
			restarted = true
		} else {
			failed = err
		}
	}
	if !restarted {
		return fmt.Errorf("service %s: %w", service, failed)
	}
	d.log.Info().Str("service", service).Msg("restarting a service that had failed permanently, on request")
	return nil
}

// rewritten reports whether a model file has another hash than the one that a worker has
// loaded. A file that cannot be read counts as changed: loading it will say why. It reads
// the whole file.
func rewritten(ctx context.Context, model, hash string, limit time.Duration) (bool, error) {
	if !config.IsPath(model) {
		return false, nil
	}
	now, err := hashModel(ctx, model, limit)
	return err != nil || now != hash, err
}

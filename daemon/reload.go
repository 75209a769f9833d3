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
	"github.com/overlapd/overlapd/textfile"
)

var (
	// ErrReloading is returned when a configuration is to take effect while
	// another one does.
	ErrReloading = errors.New("another reload is in progress: wait until it has ended")

	// ErrStopping is returned when a daemon that stops is to reload.
	ErrStopping = loop.ErrEnded
)

// Reload lets a configuration take effect while queries are served. It must be
// valid. Services are taken away first, then changed, then added and replaced,
// one after another: a new worker loads beside the old one, which serves until
// the new one is ready, and goes on if that fails. A service that gets variants or loses them
// is replaced last, and in one step. A service that was given up is tried again. What needs a restart
// stays as it was, and is listed. Tokens and certificates are read again. Progress may be
// nil.
//
// The error is why a reload did not begin or was cut short; what is in Reloaded
// is done nevertheless. A service that cannot be loaded is no error, but stands
// in Failed.
func (d *Daemon) Reload(ctx context.Context, next config.Config, progress func(config.Step)) (*config.Reloaded, error) {
	if d.life.Err() != nil || d.backend.Draining() {
		return nil, ErrStopping
	}
	if !d.reloading.TryLock() {
		return nil, ErrReloading
	}
	defer d.reloading.Unlock()
	defer d.backend.Broaden()()
	old := d.Config()
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

// read reads all files that a reload compares with what is in use, and returns what the
// next configuration changes. Nothing changes if one of them cannot be read in time.
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

// rewritten reports whether the model file of a service is not the one that its worker has
// loaded.
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

// reload is one reload on its way.
type reload struct {
	*Daemon
	ctx      context.Context
	next     config.Config // without what needs a restart
	progress func(config.Step)
	done     config.Reloaded
}

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

// succession is services that all others of a name take the place of: with variants in the
// place of one without, the other way round, or with other variants.
type succession struct{ old, next []string }

// successions returns what of the services to be removed and added is to clients another
// service of the same name. They have a name together before the first slash.
func (r *reload) successions() (all []succession) {
	of := func(name string) string { s, _, _ := strings.Cut(name, "/"); return s }
	named := func(names []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return of(n) != name })
	}
	now := r.Config()
	for _, name := range r.done.Added {
		s := succession{named(r.done.Removed, of(name)), named(r.done.Added, of(name))}
		if s.next[0] == name && len(s.old) > 0 && len(s.old) == len(named(now.Names(), of(name))) {
			all = append(all, s)
		}
	}
	return all
}

// succeed loads services and then has them answer in the place of others, in one step. If
// one of them cannot be loaded, those that served before serve on.
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

// moved returns the places of a service whose targets or devices change. A worker that is
// there stays as it is.
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

// holds enters into the configuration what services have become. It keeps the
// order of the new configuration. What that does not have stays at the end until it is gone.
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

// removalTimeout is how long a reload waits for a service that it takes away to answer
// what it has accepted, before it loads others in its place. Requests that still arrive
// hold it, too. It goes in any case.
const removalTimeout = 30 * time.Second

// errCutShort is why a service is not loaded when a reload is cut short.
var errCutShort = errors.New("the reload was cut short")

// remove takes services away, but for those that others are to take the place of, and then
// waits until they are gone.
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

// change gives a service other targets.
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

// load has a service join, which then serves or, if it is held, can. It returns the fault if
// it does not, and why the reload is cut short, if it is.
func (r *reload) load(name string, held bool) (j *loop.Joining, fault, cut error) {
	r.progress(config.Step{Service: name, State: config.StepLoading})
	j, fault = r.join(r.ctx, &r.next, r.next.Service(name), held)
	if errors.Is(fault, context.DeadlineExceeded) {
		cut = fmt.Errorf("service %s: %w", name, fault) // the next one may wait for the same file system
	}
	if fault == nil {
		fault, cut = r.await(j)
	}
	return j, fault, cut
}

// await returns when a service has joined or does not, with the fault, or when the reload is
// cut short, with why.
func (r *reload) await(j *loop.Joining) (fault, cut error) {
	for {
		select {
		case step := <-j.News:
			r.progress(step)
		case fault = <-j.Ready:
			for len(j.News) > 0 { // what came before the end is shown before it
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

// ended reports what became of a service. That one could not be loaded does not
// end the reload.
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

// These errors are for Restart.
var (
	// ErrNoService is returned when there is no service of that name.
	ErrNoService = errors.New("there is no such service; overlapd status lists them")

	// ErrNotGivenUp is returned when a service was not given up, so that there
	// is nothing to try again.
	ErrNotGivenUp = loop.ErrNotGivenUp
)

// Restart tries a service again whose worker was lost too often, or that found
// no room on its GPU; of one with variants each for which that holds. It does not wait
// for the worker.
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
	d.log.Info().Str("service", service).Msg("starting a service again that was given up, as was asked for")
	return nil
}

// rewritten reports whether the file of a model is not the one with this hash,
// which a worker has loaded. A file that cannot be read counts as another one:
// loading it will say why. It reads the whole file.
func rewritten(ctx context.Context, model, hash string, limit time.Duration) (bool, error) {
	if !config.IsPath(model) {
		return false, nil
	}
	now, err := hashModel(ctx, model, limit)
	return err != nil || now != hash, err
}

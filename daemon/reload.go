package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/residents"
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
	// All files are read first: if a file system does not respond in time, nothing has changed.
	policies := func() (struct{}, error) { return struct{}{}, d.devices.checkSelection(&applied) }
	if _, err := textfile.Within(ctx, "policies", policies); err != nil {
		return nil, err
	}
	texts := func() (struct{}, error) { return struct{}{}, d.devices.readTexts(&next, d.backend) }
	if _, err := textfile.Within(ctx, "tokenizers", texts); err != nil {
		return nil, err
	}
	applied = config.Applied(old, next)
	access := func() (struct{}, error) { return struct{}{}, d.access.Reload() }
	if _, err := textfile.Within(ctx, "tokens and certificates", access); err != nil {
		return nil, err
	}
	r := &reload{backend: d.backend, devices: d.devices, residents: d.residents, config: &d.config, ctx: ctx, next: applied, progress: progress}
	defer r.residents.Hold()()
	if err := r.compare(old, next); err != nil {
		return nil, err
	}
	began := time.Now()
	err := r.run(plan(old.Names(), &r.done))
	r.done.Took = time.Since(began)
	return &r.done, err
}

// change is one step of a reload: services that come, go, or replace others.
type change struct {
	old, next []string

	// stay is set if the workers stay, and only targets or devices change.
	stay bool
}

// plan returns the steps of a reload in the order that Reload describes. running are the
// services before it.
func plan(running []string, r *config.Reloaded) (steps []change) {
	// Clients see services as one that share the name before the first slash. If all of the
	// name are replaced, it is in one step: by services with variants in place of one without,
	// the reverse, or other variants. Otherwise some are simply added.
	of := func(name string) string { s, _, _ := strings.Cut(name, "/"); return s }
	named := func(names []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(names), func(n string) bool { return of(n) != name })
	}
	var successions []change
	removed, loaded := slices.Clone(r.Removed), slices.Concat(r.Added, r.Replaced, r.Retried)
	for _, name := range r.Added {
		s := change{old: named(r.Removed, of(name)), next: named(r.Added, of(name))}
		if s.next[0] == name && len(s.old) > 0 && len(s.old) == len(named(running, of(name))) {
			successions = append(successions, s)
			removed = slices.DeleteFunc(removed, func(name string) bool { return slices.Contains(s.old, name) })
			loaded = slices.DeleteFunc(loaded, func(name string) bool { return slices.Contains(s.next, name) })
		}
	}
	// A version that gets the plain name of its model, because a higher one goes, keeps its own
	// until it has loaded there.
	var last []string
	removed = slices.DeleteFunc(removed, func(name string) bool {
		model := query.ModelOf(name)
		moves := model != name && slices.Contains(r.Replaced, model)
		if moves {
			last = append(last, name)
		}
		return moves
	})
	steps = append(steps, change{old: removed})
	for _, name := range slices.Concat(r.Changed, r.Moved) {
		steps = append(steps, change{next: []string{name}, stay: true})
	}
	for _, name := range loaded {
		steps = append(steps, change{next: []string{name}})
	}
	if steps = append(steps, successions...); len(last) > 0 {
		steps = append(steps, change{old: last})
	}
	return steps
}

// effective is the configuration in effect, which a reload changes while others read it.
type effective struct {
	mu     sync.Mutex
	config config.Config
}

// get returns the configuration.
func (e *effective) get() config.Config {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.config
}

// update changes the configuration. change must replace lists instead of modifying them,
// because readers hold copies of the old slices.
func (e *effective) update(change func(*config.Config)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change(&e.config)
}

// hold takes the state of some services from another configuration, and its order. Services
// that it does not have stay at the end until they are gone.
func (e *effective) hold(next *config.Config, names ...string) {
	e.update(func(c *config.Config) {
		var services []config.Service
		for _, s := range next.Services {
			if before := c.Service(s.Name); slices.Contains(names, s.Name) {
				services = append(services, s)
			} else if before != nil {
				services = append(services, *before)
			}
		}
		c.Services = append(services, slices.DeleteFunc(slices.Clone(c.Services), func(s config.Service) bool {
			return next.Service(s.Name) != nil || slices.Contains(names, s.Name)
		})...)
	})
}

// reload is a running reload.
type reload struct {
	backend *loop.Backend
	devices pool
	config  *effective
	ctx     context.Context

	// residents is nil if all models are loaded at the start.
	residents *residents.Set

	// next is the new configuration without what needs a restart.
	next     config.Config
	progress func(config.Step)
	done     config.Reloaded
}

// compare finds out what the new configuration changes. It reads all model files, to see
// whether they have changed since a worker loaded them.
func (r *reload) compare(old, next config.Config) error {
	var hangs error
	r.done = config.Diff(old, next, func(name string) bool {
		s, of := r.backend.Running(name), old.Service(name)
		if hangs != nil || r.ctx.Err() != nil || r.devices[0].emulation != nil || s == nil || s.Signature() == nil || of == nil {
			return false
		}
		changed, err := rewritten(r.ctx, of.Model, s.Signature().Info.Hash, old.Worker.LoadTimeout, of.OpLibraries...)
		if errors.Is(err, context.DeadlineExceeded) {
			hangs = fmt.Errorf("service %s: %w", name, err)
		}
		return changed
	}, func(name string) bool {
		s := r.backend.Running(name)
		return s != nil && s.GivenUp.Load()
	})
	r.done.Failed = map[string]string{}
	return cmp.Or(context.Cause(r.ctx), hangs)
}

// run applies the settings and then the steps.
func (r *reload) run(steps []change) error {
	r.config.update(func(c *config.Config) {
		c.LogLevel, c.DrainTimeout, c.Plan = r.next.LogLevel, r.next.DrainTimeout, r.next.Plan
	})
	if level, err := zerolog.ParseLevel(r.next.LogLevel); err == nil {
		zerolog.SetGlobalLevel(level)
	}
	if !r.backend.Order(r.next.Names()) {
		return ErrStopping
	}
	for _, c := range steps {
		var err error
		switch {
		case len(c.next) == 0:
			err = r.remove(c.old)
		case c.stay && !r.asleep(c.next[0]):
			err = r.retarget(c.next[0])
		case len(c.old) == 0 && r.mayRest(c.next[0]):
			r.ended(c.next[0], nil)
		case len(c.old) == 0:
			var fault error
			_, fault, err = r.load(c.next[0], false)
			r.ended(c.next[0], fault)
		default:
			err = r.succeed(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// removalTimeout is how long a reload waits for a removed service to answer its accepted
// requests before it loads others in its place. Requests that are still arriving delay it
// as well. The service is removed in any case.
const removalTimeout = 30 * time.Second

// errCutShort is why a service is not loaded when a reload is interrupted.
var errCutShort = errors.New("the reload was interrupted")

// remove removes services and waits until they are gone.
func (r *reload) remove(removed []string) error {
	gone := make([]chan struct{}, len(removed))
	for i, name := range removed {
		gone[i] = make(chan struct{})
		if !r.backend.TakeAway(name, gone[i]) {
			return ErrStopping
		}
		r.residents.Forget(name)
		r.config.hold(&r.next, name)
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

// retarget applies new targets or devices to a service without replacing its model.
func (r *reload) retarget(name string) error {
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

// asleep reports whether the model of a service is on disk.
func (r *reload) asleep(name string) bool {
	s := r.backend.Service([]byte(name))
	return s != nil && s.Asleep != nil
}

// mayRest reports whether a service need not be loaded: nobody has asked for it.
func (r *reload) mayRest(name string) bool {
	return r.residents != nil && !r.next.Stays(r.next.Service(name)) && (r.asleep(name) || r.backend.Service([]byte(name)) == nil)
}

// moved returns the new places of a service. Existing workers are kept.
func (r *reload) moved(s *config.Service) (places []loop.Place, err error) {
	old := r.config.get()
	was := r.devices.on(&old, s.Name)
	for _, u := range r.devices.on(&r.next, s.Name) {
		place := u.placeOf(s)
		if !slices.Contains(was, u) {
			if place, err = u.worker(0, s); err != nil {
				return nil, err
			}
		}
		places = append(places, place)
	}
	return places, nil
}

// succeed loads services and then switches to them in one step. If one of them cannot be
// loaded, the old services continue.
func (r *reload) succeed(s change) (err error) {
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
		r.config.hold(&r.next, slices.Concat(s.old, s.next)...)
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

// load starts the workers of a service and waits until it has joined. fault says why it has
// not. cut says why the reload must be interrupted.
func (r *reload) load(name string, held bool) (j *loop.Joining, fault, cut error) {
	r.progress(config.Step{Service: name, State: config.StepLoading})
	j, fault = r.join(r.next.Service(name), held)
	if errors.Is(fault, context.DeadlineExceeded) {
		cut = fmt.Errorf("service %s: %w", name, fault) // the next service may wait for the same file system
	}
	if fault == nil {
		fault, cut = r.await(j)
	}
	return j, fault, cut
}

// newResidents returns the services whose models are loaded when they are asked for.
func (d *Daemon) newResidents() *residents.Set {
	return residents.New(residents.Options{
		Backend: d.backend, Log: d.log, Config: d.Config, Devices: len(d.devices), Life: d.life, Running: &d.running,
		Load: func(s *config.Service) error {
			asked, c := *s, d.Config()
			if _, err := readTexts([]*config.Service{&asked}, func(s *config.Service) (string, error) { return d.devices[0].model(s.Model) }); err != nil {
				return err
			}
			run := &reload{backend: d.backend, devices: d.devices, config: &d.config, ctx: d.life, next: c, progress: func(config.Step) {}}
			return run.joined(&asked)
		},
		Known: func(s *config.Service) (*query.Signature, error) {
			file, c := *s, d.Config()
			var err error
			if file.Model, err = d.devices[0].model(s.Model); err != nil {
				return nil, err
			}
			sig, fault, err := checkModel(d.life, &file, c.Worker.LoadTimeout)
			return sig, cmp.Or(fault, err)
		},
	})
}

// joined starts the workers of a service and waits until it takes requests.
func (r *reload) joined(c *config.Service) error {
	j, err := r.join(c, false)
	if err == nil {
		fault, cut := r.await(j)
		err = cmp.Or(fault, cut)
	}
	return err
}

// join starts the workers of a service that is to take requests: as soon as they are ready,
// or, if held is set, only when the caller says so. If it fails, reserved memory is
// released.
func (r *reload) join(c *config.Service, held bool) (*loop.Joining, error) {
	sig, fault, err := checkModel(r.ctx, c, r.next.Worker.LoadTimeout)
	if of, _ := c.Of(); of != "" && sig != nil && fault == nil {
		// A variant must have the inputs and outputs of those that serve already.
		if front := r.backend.Service([]byte(of)); front != nil && len(front.Variants) > 0 && front.Signature() != nil {
			fault = front.Signature().Differs(sig)
		}
	}
	if err := errors.Join(fault, err); err != nil {
		return nil, err
	}
	places, err := r.devices.on(&r.next, c.Name).places(0, c)
	if err == nil && len(places) == 0 && r.next.Policy == config.Static {
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
		j, err = r.backend.Admit(c, places, held)
	}
	if err != nil {
		for _, place := range places {
			place.GiveBack()
		}
	}
	return j, err
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
	r.config.hold(&r.next, name)
	if s := r.next.Service(name); r.residents != nil && s != nil {
		r.residents.Admit(&r.next, *s)
	}
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

// rewritten reports whether a model file, with the libraries of its custom operators, has
// another hash than the one that a worker has loaded. A file that cannot be read counts as
// changed: loading it will say why. It reads all of the files.
func rewritten(ctx context.Context, model, hash string, limit time.Duration, libraries ...string) (bool, error) {
	if !config.IsPath(model) {
		return false, nil
	}
	now, err := hashModel(ctx, model, limit, libraries...)
	return err != nil || now != hash, err
}

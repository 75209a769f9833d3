package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/executor"
)

// zooSeed is the seed of the weights of the zoo's models.
const zooSeed = 1

const (
	// saveInterval is how often what was measured is stored.
	saveInterval = time.Minute

	// refuseTime is how long the clients that were not answered within the
	// drain timeout may take to read that.
	refuseTime = time.Second
)

// Daemon is one running overlapd: the state file, the instances that decide and
// run, and the endpoints in front of them.
type Daemon struct {
	config    config.Config // of all instances
	log       zerolog.Logger
	device    string     // that the services run on, in words
	emulation *emulation // nil for a device that computes
	state     *state
	keeper    *loop.Keeper
	gpu       *gpu.GPU
	instances []*instance // one, or one for each instance of a GPU that is divided

	face     face         // of all instances, that the endpoints speak to
	tracer   *otlp.Tracer // nil for none
	endpoint *http.Endpoint
	listener net.Listener
	remote   remoteEndpoint
	access   *access.Access

	configured sync.Mutex      // guards config once the daemon runs
	reloading  sync.Mutex      // held by the reload that is on its way
	life       context.Context // ends when the daemon closes

	die        context.CancelFunc // ends what runs besides serving
	goroutines sync.WaitGroup     // the scheduler, the listener and what they start; close waits for them
	keeping    sync.WaitGroup     // the keeper, which ends last
}

// Options is what a daemon needs besides its configuration.
type Options struct {
	Worker  []string // command line of a worker
	Check   []string // command line of a child that runs statefile.RunCheck, none to check the state file here
	Version string
	Commit  string
	Device  string       // in words, such as the processor's name
	Cores   int          // threads of a service that sets none
	Fit     loop.FitFunc // nil if no predictor is to be fitted
	Offline bool         // for Measure: there is no endpoint
	GPU     gpu.Options
	Log     zerolog.Logger

	workers   func(executor.Options) (loop.Workers, error) // nil for processes
	emulation func(*config.Config) (*emulation, error)     // nil for that of a profile
}

// New opens everything that can be refused: the address, the state file, the
// models. Nothing is served before Run. The configuration must be valid.
func New(c config.Config, o Options) (d *Daemon, err error) {
	d = &Daemon{config: c, log: o.Log, device: o.Device}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	var aside string
	if d.state, aside, err = openState(c.StateDir, o.Check); err != nil {
		return d, err
	}
	if aside != "" {
		d.log.Warn().Str("kept_as", aside).Msg("the state file was damaged and set aside; what was measured is measured again")
	}
	if c.Emulated() {
		if err = d.emulate(&o); err != nil {
			return d, err
		}
	}
	if !o.Offline {
		if err = d.openAccess(); err != nil {
			return d, err
		}
		if d.listener, err = http.Listen(c.Listen); err != nil {
			return d, err
		}
		if err = d.remote.listen(c.GRPCListen); err != nil {
			return d, err
		}
	}
	d.keeper = loop.NewKeeper(d.state.datasets, d.log)
	d.keeping.Go(d.keeper.Run)
	if err = d.takeGPU(&o); err != nil {
		return d, err
	}
	d.life, d.die = context.WithCancel(context.Background())
	d.divide()
	if err = d.each(func(i *instance) error { return i.open(d, &o) }); err != nil || o.Offline {
		return d, err
	}
	return d, d.openEndpoints(&c, &o)
}

// Addr returns the address that the endpoint listens on.
func (d *Daemon) Addr() net.Addr { return d.listener.Addr() }

// GRPCAddr returns the address of gRPC, or nil if it is off.
func (d *Daemon) GRPCAddr() net.Addr { return d.remote.addr() }

// Device returns what the services run on, in words.
func (d *Daemon) Device() string { return d.device }

// Ready reports whether every service can answer queries.
func (d *Daemon) Ready() bool { return d.face.Ready() }

// Run serves until ctx ends, and then answers what it has accepted, for at
// most the drain timeout. It ends at once if hurry ends. The order of starting
// and stopping is here and nowhere else.
func (d *Daemon) Run(ctx, hurry context.Context) error {
	if err := d.each((*instance).start); err != nil {
		return errors.Join(err, d.close())
	}
	served := make(chan error, 2)
	d.goroutines.Go(func() { served <- d.endpoint.Serve(d.listener) })
	if d.remote.listener != nil {
		d.goroutines.Go(func() { served <- d.remote.serve() })
		d.log.Info().Stringer("address", d.GRPCAddr()).Msg("listening for gRPC")
	}
	d.log.Info().Stringer("address", d.Addr()).Str("policy", d.config.Policy).Int("services", len(d.config.Services)).Msg("listening")
	err := d.wait(ctx, served)

	d.log.Info().Dur("at_most", d.Config().DrainTimeout).Msg("stopping: answering what was accepted")
	late := d.shutdown(hurry)
	d.saveAll()
	if cerr := d.close(); late == nil || !errors.Is(cerr, executor.ErrLeak) {
		err = errors.Join(err, cerr)
	}
	return err
}

// shutdown answers what was accepted, for at most the drain timeout, and
// refuses the rest. It returns an error if somebody was left without an
// answer.
func (d *Daemon) shutdown(hurry context.Context) error {
	drain := d.Config().DrainTimeout
	limit, cancel := context.WithTimeout(hurry, drain)
	defer cancel()
	last, cancel := context.WithTimeout(hurry, drain+refuseTime)
	defer cancel()
	for _, u := range d.instances {
		u.backend.Drain()
		stop := context.AfterFunc(limit, u.backend.GiveUp)
		defer stop()
	}
	merr := d.each(func(u *instance) error { return u.backend.StopMeasuring(last) })
	stopped := d.remote.shutdown(last)
	err := errors.Join(d.endpoint.Shutdown(last), <-stopped)
	if err != nil && !errors.Is(err, context.Canceled) {
		d.log.Warn().Err(err).Msg("not every request was answered in time")
	}
	return errors.Join(err, merr)
}

// wait waits for the end of ctx or of the listener, and stores now and then
// what was measured.
func (d *Daemon) wait(ctx context.Context, served <-chan error) error {
	save := time.NewTicker(saveInterval)
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-served:
			if err == nil {
				err = errors.New("the listener was closed")
			}
			return err
		case <-save.C:
			d.saveAll()
		}
	}
}

// close ends what New opened, in the opposite order.
func (d *Daemon) close() error {
	var errs []error
	if d.die != nil {
		d.die()
	}
	d.reloading.Lock() // the last one sees that the daemon stops, and ends
	errs = append(errs, d.each((*instance).stop))
	if d.listener != nil {
		if err := d.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, d.remote.close())
	d.goroutines.Wait()
	for _, u := range d.instances {
		if u.decisions != nil {
			errs = append(errs, u.decisions.Close())
		}
	}
	d.closeTracer()
	if d.gpu != nil {
		errs = append(errs, d.gpu.Give())
	}
	if d.keeper != nil {
		d.keeper.Close()
		d.keeping.Wait()
	}
	if d.state != nil {
		errs = append(errs, d.state.close())
	}
	return errors.Join(errs...)
}

// each does something with every instance and joins the errors.
func (d *Daemon) each(f func(*instance) error) error {
	var errs []error
	for _, u := range d.instances {
		errs = append(errs, f(u))
	}
	return errors.Join(errs...)
}

// saveAll stores what was measured of every service.
func (d *Daemon) saveAll() {
	for _, u := range d.instances {
		u.saveProfiles()
	}
}

// emulate takes a modelled device instead of a real one.
func (d *Daemon) emulate(o *Options) (err error) {
	if o.Offline {
		return ErrEmulated
	}
	read := o.emulation
	if read == nil {
		read = newEmulation
	}
	if d.emulation, err = read(&d.config); err != nil {
		return err
	}
	d.device = d.emulation.text
	d.log.Warn().Str("device", d.device).Str("profile", d.config.DeviceProfile).
		Msg("the device is emulated: nothing is computed, every output is zeros, and only the time that it takes is like a device's")
	return nil
}

// takeGPU takes a GPU into use, if the services are to run on one.
func (d *Daemon) takeGPU(o *Options) (err error) {
	ctx := context.Background() // every step has a limit of its own
	if d.gpu, err = gpu.Choose(ctx, d.config, o.GPU, d.log); d.gpu == nil || err != nil {
		return err
	}
	if o.Offline && len(d.gpu.Parts()) > 1 {
		return errManyInstances
	}
	for _, line := range strings.Split(strings.TrimSpace(d.gpu.String()), "\n") {
		d.log.Info().Str("gpu", line).Msg("plan")
	}
	if err := d.gpu.Take(ctx); err != nil {
		return err
	}
	return nil
}

// divide makes the instances: one for each part of a GPU that is divided, else one.
// All of them share the state file.
func (d *Daemon) divide() {
	one := instance{config: d.config, log: d.log, device: d.device, emulation: d.emulation, state: d.state, keeper: d.keeper}
	if d.gpu == nil {
		d.instances = []*instance{&one}
		return
	}
	parts := d.gpu.Parts()
	for n, p := range parts {
		i := one
		i.part, i.device = p, p.Text
		if len(parts) > 1 {
			i.config.Services = slices.DeleteFunc(slices.Clone(one.config.Services), func(s config.Service) bool {
				return !slices.Contains(p.Services, s.Name)
			})
			i.dir = fmt.Sprintf("instance-%d", n)
			i.log = one.log.With().Str("instance", p.UUID).Logger()
		}
		d.instances = append(d.instances, &i)
	}
	d.device = d.instances[0].device
}

// measureInterval is how often Measure reports.
const measureInterval = 200 * time.Millisecond

// Measure measures operator groups instead of serving, until there is nothing
// left to measure, the limit is spent, or ctx ends. What was measured is in
// the state file, and the next time goes on from there. The daemon must have
// been made with the option Offline. It is closed then.
func (d *Daemon) Measure(ctx context.Context, limit time.Duration, report func(loop.Report)) (last loop.Report, err error) {
	i := d.instances[0]
	i.backend.Measure(limit)
	if err := i.start(); err != nil {
		return last, errors.Join(err, d.close())
	}
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for ctx.Err() == nil && !last.Over {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		last, _ = i.backend.MeasuringReport()
		report(last)
	}
	i.backend.Drain()
	end, cancel := context.WithTimeout(context.Background(), d.config.DrainTimeout)
	defer cancel()
	_ = i.backend.StopMeasuring(end) // whatever is left then, closing tells
	i.saveProfiles()
	return last, d.close()
}

// errManyInstances is returned when several instances are to be measured by one
// command.
var errManyInstances = errors.New("overlapd profile measures one device: write a configuration for each instance, " +
	"with gpu = \"MIG-…\" and its services, or let overlapd serve measure all of them while it is idle")

// PlanGPU returns in words what a daemon with this configuration would do with
// a GPU, and what its services would have of the memory. It changes nothing but
// that models of the zoo are built. On a CPU the text is that.
func PlanGPU(c config.Config, o Options) (text string, err error) {
	g, err := gpu.Choose(context.Background(), c, o.GPU, o.Log)
	if err != nil {
		return "", err
	}
	if g == nil {
		return "no GPU is used\n", nil
	}
	defer func() { err = errors.Join(err, g.Give()) }()
	var b strings.Builder
	b.WriteString(g.String())
	d := &Daemon{config: c, log: o.Log, gpu: g}
	d.divide()
	for _, u := range d.instances {
		if err := u.planMemory(&b); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

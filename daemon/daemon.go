package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/executor"
)

const (
	// saveInterval is how often what was measured is stored.
	saveInterval = time.Minute

	// refuseTime is how long the clients that were not answered within the
	// drain timeout may take to read that.
	refuseTime = time.Second
)

// Daemon is one running overlapd: the state file, the devices, the loop that decides
// about them, and the endpoints in front of it.
type Daemon struct {
	pool
	config config.Config
	gpus   []*gpu.GPU

	tracer *otlp.Tracer // nil for none
	front  front
	access *access.Access

	configured sync.Mutex // guards config once the daemon runs
	reloading  sync.Mutex // held by the reload that is on its way

	failed  chan error         // why it ends by itself, of which only the first counts
	die     context.CancelFunc // ends what runs besides serving
	running sync.WaitGroup     // the scheduler and what it starts; close waits for them
	keeping sync.WaitGroup     // the keeper, which ends last
}

// New opens everything that can be refused: the address, the state file, the
// models. Nothing is served before Run. The configuration must be valid.
func New(c config.Config, o Options) (d *Daemon, err error) {
	whole := c.Expanded()
	c = config.Divided(whole, c.Policy)
	d = &Daemon{config: c, failed: make(chan error, 1)}
	d.pool = pool{config: c, log: o.Log, goroutines: &d.running}
	d.life, d.die = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if o.workers == nil { // else there are no processes
		err = CheckCores(&c)
	}
	if err != nil {
		return d, err
	}
	for _, line := range whole.Devices.Idle(whole.Services) {
		d.log.Warn().Msg(line)
	}
	var aside string
	if d.state, aside, err = openState(c.StateDir, o.Check); err != nil {
		return d, err
	}
	if aside != "" {
		d.log.Warn().Str("kept_as", aside).Msg("the state file was damaged and set aside; what was measured is measured again")
	}
	one := poolDevice{
		config: c, log: o.Log, text: o.Device, runtime: o.Runtime, state: d.state, cores: o.Cores, life: d.life, goroutines: d.goroutines, failed: d.failed,
	}
	if c.Emulated() {
		if d.devices, err = emulate(one, &o); err != nil {
			return d, err
		}
	}
	if !o.Offline {
		if err = d.openAccess(); err != nil {
			return d, err
		}
		if err = d.front.listen(&c, &o); err != nil {
			return d, err
		}
	}
	d.keeper = loop.NewKeeper(d.state.datasets, d.log)
	d.keeping.Go(d.keeper.Run)
	if err = d.takeGPU(whole, &o); err != nil {
		return d, err
	}
	if len(d.devices) == 0 {
		d.devices = pooled(one, d.gpus)
	}
	d.takeSource()
	if len(d.gpus) > 0 || c.Emulated() {
		o.Processors = 0 // calls of the driver block, and an emulated device polls for the end of a span
	}
	if err = d.openLoop(&o); err != nil || o.Offline {
		return d, err
	}
	return d, d.openEndpoints(&c, &o)
}

// Addr returns the address that the endpoint listens on.
func (d *Daemon) Addr() net.Addr { return d.front.listener.Addr() }

// GRPCAddr returns the address of gRPC, or nil if it is off.
func (d *Daemon) GRPCAddr() net.Addr {
	if d.front.remote == nil {
		return nil
	}
	return d.front.remote.Addr()
}

// Ready reports what /v2/health/ready does.
func (d *Daemon) Ready() bool { return d.backend.NotReady() == nil }

// Leave has the daemon say that it is not ready, over HTTP and gRPC, or not any more. It
// answers queries as before, since those who balance learn of it late.
func (d *Daemon) Leave(leaves bool) { d.backend.Leave(leaves) }

// Open returns how many requests each service has that are not answered, without those that
// have none, and how many requests have ended since the start.
func (d *Daemon) Open() (open map[string]int64, ended uint64) {
	open = map[string]int64{}
	for _, s := range d.backend.Services() {
		if n := s.Users(); n > 0 {
			open[s.Name] = n
		}
		counts := s.Stats.Counts()
		ended += counts.Success.Count + counts.Fail.Count
	}
	return open, ended
}

// Run serves until ctx ends, and then answers what it has accepted, for at
// most the drain timeout. It ends at once if hurry ends. The order of starting
// and stopping is here and nowhere else.
func (d *Daemon) Run(ctx, hurry context.Context) error {
	if err := d.start(); err != nil {
		return errors.Join(err, d.close())
	}
	opening, opened := context.WithCancel(ctx)
	defer opened()
	d.front.open(func() bool { return d.awaitServices(opening) }, func() {
		if d.front.remote != nil {
			d.log.Info().Stringer("address", d.GRPCAddr()).Msg("listening for gRPC")
		}
		d.log.Info().Stringer("address", d.Addr()).Str("policy", d.config.Policy).Int("services", len(d.config.Services)).Msg("listening")
	})
	err := d.wait(ctx, d.front.served)
	opened()

	d.log.Info().Dur("at_most", d.Config().DrainTimeout).Msg("stopping: answering what was accepted")
	late := d.shutdown(hurry)
	d.saveProfiles()
	if cerr := d.close(); late == nil || !errors.Is(cerr, executor.ErrLeak) {
		err = errors.Join(err, cerr)
	}
	return err
}

// shutdown answers what was accepted, for at most the drain timeout, and
// refuses the rest. It returns an error if somebody was left without an
// answer.
//
// Where a listening socket outlives the daemon, clients do not know that it stops. So nothing
// is refused while there is time: no connection is accepted any more, and those that were are
// closed with an answer, or asked to connect again (GOAWAY).
func (d *Daemon) shutdown(hurry context.Context) error {
	drain := d.Config().DrainTimeout
	limit, cancel := context.WithTimeout(hurry, drain)
	defer cancel()
	last, cancel := context.WithTimeout(hurry, drain+refuseTime)
	defer cancel()
	var closed error
	if d.front.lasting {
		closed = d.front.close()
	} else {
		d.backend.Drain()
	}
	defer context.AfterFunc(limit, func() {
		d.backend.Drain()
		d.backend.GiveUp()
	})()
	merr := d.backend.StopMeasuring(last)
	err := d.front.shutdown(last)
	if err != nil && !errors.Is(err, context.Canceled) {
		d.log.Warn().Err(err).Msg("not every request was answered in time")
	}
	return errors.Join(err, merr, closed)
}

// wait waits for the end of ctx or of the listener, or for a model that is no good, and
// stores now and then what was measured.
func (d *Daemon) wait(ctx context.Context, served <-chan error) error {
	save := time.NewTicker(saveInterval)
	defer save.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-d.failed:
			return err
		case err := <-served:
			if err == nil {
				err = errors.New("the listener was closed")
			}
			return err
		case <-save.C:
			d.saveProfiles()
		}
	}
}

// close ends what New opened, in the opposite order.
func (d *Daemon) close() error {
	var errs []error
	d.die()
	d.reloading.Lock() // the last one sees that the daemon stops, and ends
	if d.backend != nil {
		errs = append(errs, d.backend.Close())
	}
	errs = append(errs, d.front.close())
	d.goroutines.Wait()
	if d.decisions != nil {
		errs = append(errs, d.decisions.Close())
	}
	d.closeTracer()
	for _, g := range d.gpus {
		errs = append(errs, g.Give())
	}
	if d.keeper != nil {
		d.keeper.Close()
		d.keeping.Wait()
	}
	if d.state != nil {
		errs = append(errs, d.state.Close())
	}
	return errors.Join(errs...)
}

// takeGPU takes the GPUs of a configuration into use that is not divided, if the services
// are to run on one.
func (d *Daemon) takeGPU(whole config.Config, o *Options) (err error) {
	ctx := context.Background() // every step has a limit of its own
	if d.gpus, err = gpu.Choose(ctx, whole, o.GPU, d.log); err != nil {
		return err
	}
	for _, g := range d.gpus {
		for _, line := range strings.Split(strings.TrimSpace(g.String()), "\n") {
			d.log.Info().Str("gpu", line).Msg("plan")
		}
		if err = g.Take(ctx); err != nil {
			return err
		}
	}
	return nil
}

// measureInterval is how often Measure reports.
const measureInterval = 200 * time.Millisecond

// Measure measures operator groups instead of serving, until there is nothing
// left to measure, the limit is spent, or ctx ends. What was measured is in
// the state file, and the next time goes on from there. The daemon must have
// been made with the option Offline. It is closed then.
func (d *Daemon) Measure(ctx context.Context, limit time.Duration, report func(loop.Report)) (last loop.Report, err error) {
	d.backend.Measure(limit)
	if err := d.start(); err != nil {
		return last, errors.Join(err, d.close())
	}
	tick := time.NewTicker(measureInterval)
	defer tick.Stop()
	for ctx.Err() == nil && !last.Over {
		select {
		case <-ctx.Done():
		case <-tick.C:
		}
		last, _ = d.backend.MeasuringReport()
		report(last)
	}
	d.backend.Drain()
	end, cancel := context.WithTimeout(context.Background(), d.config.DrainTimeout)
	defer cancel()
	_ = d.backend.StopMeasuring(end) // whatever is left then, closing tells
	d.saveProfiles()
	return last, d.close()
}

// newTracer returns what traces the queries of a daemon, or nil if none is
// configured.
func (d *Daemon) newTracer(version string) (*otlp.Tracer, error) {
	c := d.config.Tracing
	if c.Endpoint == "" && !tracing.FromEnvironment() {
		return nil, nil
	}
	c.Instance = d.identity()
	t, err := otlp.New(otlp.Options{
		Tracing: c, Version: version,
		Report: func(queries, spans uint64, why error) {
			d.log.Warn().Err(why).Uint64("queries", queries).Uint64("spans", spans).Msg("traces are lost; serving goes on")
		},
	})
	if err == nil {
		d.log.Info().Str("endpoint", c.Endpoint).Float64("sample", c.Sample).Msg("queries are traced")
	}
	return t, err
}

// identity names a daemon among those of one name: by what it runs on, or by where
// it listens.
func (d *Daemon) identity() string {
	switch {
	case d.config.Tracing.Instance != "":
		return d.config.Tracing.Instance
	case len(d.devices) == 1 && d.devices[0].part != nil && d.devices[0].part.UUID != "":
		return d.devices[0].part.UUID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return host + "/" + d.config.Listen
}

// closeTracer sends what waits. A collector that does not take it in time is no
// failure of the daemon.
func (d *Daemon) closeTracer() {
	if d.tracer == nil {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), otlp.FlushTime)
	defer cancel()
	if err := d.tracer.Close(limit); err != nil {
		d.log.Warn().Err(err).Msg("traces are lost")
	}
}

// Config returns the configuration that holds now, expanded.
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

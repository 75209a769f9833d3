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
	// saveInterval is how often measurements are stored.
	saveInterval = time.Minute

	// refuseTime is how long clients that were not answered within the drain timeout may
	// take to read the rejection.
	refuseTime = time.Second
)

// Daemon is a running overlapd: the state file, the devices, the loop that schedules them,
// and the endpoints. New opens it, and Run or Measure runs it.
type Daemon struct {
	pool
	config config.Config
	gpus   []*gpu.GPU

	// tracer is nil if queries are not traced.
	tracer *otlp.Tracer
	front  front
	access *access.Access

	// configured guards config while the daemon runs.
	configured sync.Mutex

	// reloading is locked by a running reload.
	reloading sync.Mutex

	// failed receives why the daemon must end by itself. Only the first error counts.
	failed chan error

	// die cancels life, the context of everything besides serving.
	die context.CancelFunc

	// running counts the scheduler and the goroutines it starts. close waits for them.
	running sync.WaitGroup

	// keeping counts the state writer, which ends last.
	keeping sync.WaitGroup
}

// New opens everything that can fail: the addresses, the state file and the models. Nothing
// is served before Run. The configuration must be valid. After an error everything is
// closed.
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
	// With fake workers there are no processes to bind to cores.
	if o.workers == nil {
		err = CheckCores(&c)
	}
	if err != nil {
		return d, err
	}
	for _, line := range whole.Devices.Idle(whole.Services) {
		d.log.Warn().Msg(line)
	}
	var aside string
	// The lock of the state file also keeps a second daemon from starting in this folder.
	if d.state, aside, err = openState(c.StateDir, o.Check); err != nil {
		return d, err
	}
	if aside != "" {
		d.log.Warn().Str("kept_as", aside).Msg("the state file was damaged and renamed; everything is measured again")
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
		// Addresses are opened before GPUs, which take seconds and change the host.
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
	// An emulated pool has its devices already.
	if len(d.devices) == 0 {
		d.devices = pooled(one, d.gpus)
	}
	// The source is asked before the loop begins, which looks for a stored predictor.
	d.takeSource()
	if len(d.gpus) > 0 || c.Emulated() {
		o.Processors = 0 // driver calls block, and an emulated device polls for the end of a span
	}
	if err = d.openLoop(&o); err != nil || o.Offline {
		return d, err
	}
	return d, d.openEndpoints(&c, &o)
}

// Addr returns the address of the HTTP endpoint.
func (d *Daemon) Addr() net.Addr { return d.front.listener.Addr() }

// GRPCAddr returns the address of the gRPC endpoint, or nil if there is none.
func (d *Daemon) GRPCAddr() net.Addr {
	if d.front.remote == nil {
		return nil
	}
	return d.front.remote.Addr()
}

// Ready reports the state of /v2/health/ready.
func (d *Daemon) Ready() bool { return d.backend.NotReady() == nil }

// Leave starts or ends draining: a drained daemon reports that it is not ready, over HTTP
// and gRPC, but still answers queries, because load balancers notice with a delay.
func (d *Daemon) Leave(leaves bool) { d.backend.Leave(leaves) }

// Open returns the number of unanswered requests by service, without services that have
// none, and how many requests have ended since the start.
func (d *Daemon) Open() (open map[string]int64, ended uint64) {
	open = map[string]int64{}
	for _, s := range d.backend.Services() {
		if n := s.Users(); n > 0 {
			open[s.Name] = n
		}
		// Requests that were rejected before a service was found are not counted.
		counts := s.Stats.Counts()
		ended += counts.Success.Count + counts.Fail.Count
	}
	return open, ended
}

// Run serves until ctx is done, and then answers the accepted requests, for at most the
// drain timeout. It stops immediately when hurry is done. The order of starting and
// stopping is defined here and nowhere else.
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

	d.log.Info().Dur("at_most", d.Config().DrainTimeout).Msg("stopping: answering the accepted queries")
	// Workers still run here, so what was measured until the end can be stored.
	late := d.shutdown(hurry)
	d.saveProfiles()
	// After an interrupted shutdown, batches still hold memory, which is no leak.
	if cerr := d.close(); late == nil || !errors.Is(cerr, executor.ErrLeak) {
		err = errors.Join(err, cerr)
	}
	return err
}

// shutdown answers the accepted requests, for at most the drain timeout, and rejects the
// rest. It returns an error if a client was left without an answer.
//
// If a listening socket outlives the daemon, clients cannot know that it stops. Therefore
// nothing is rejected while there is time. No further connections are accepted, and
// existing ones are closed with a response, or told to reconnect (GOAWAY).
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
	// When the drain timeout ends, the rest is rejected, and refuseTime remains to deliver
	// that.
	defer context.AfterFunc(limit, func() {
		d.backend.Drain()
		d.backend.GiveUp()
	})()
	// Measuring stops first, so that it does not delay the remaining queries.
	merr := d.backend.StopMeasuring(last)
	err := d.front.shutdown(last)
	if err != nil && !errors.Is(err, context.Canceled) {
		d.log.Warn().Err(err).Msg("not every request was answered in time")
	}
	return errors.Join(err, merr, closed)
}

// wait blocks until ctx is done, a listener ends, or a model turns out to be invalid. It
// stores measurements every saveInterval.
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
				err = errors.New("the listener closed")
			}
			return err
		case <-save.C:
			d.saveProfiles()
		}
	}
}

// close closes what New has opened, in reverse order. It may be called on a daemon that New
// has opened only in part.
func (d *Daemon) close() error {
	var errs []error
	d.die()
	d.reloading.Lock() // a running reload sees that the daemon stops, and ends
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

// takeGPU takes the GPUs into use that the configuration names, if any. whole is the
// configuration before it was divided into shares, because several shares are on one GPU.
func (d *Daemon) takeGPU(whole config.Config, o *Options) (err error) {
	ctx := context.Background() // each step has its own limit
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

// measureInterval is how often Measure reports progress.
const measureInterval = 200 * time.Millisecond

// Measure measures operator groups instead of serving, until everything is measured, the
// limit is reached, or ctx is done. The measurements are in the state file, so that the
// next call continues from there. The daemon must have been created with the option
// Offline. Measure closes it.
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
	_ = d.backend.StopMeasuring(end) // close reports what is left
	d.saveProfiles()
	return last, d.close()
}

// newTracer returns the tracer, or nil if tracing is not configured.
func (d *Daemon) newTracer(version string) (*otlp.Tracer, error) {
	c := d.config.Tracing
	if c.Endpoint == "" && !tracing.FromEnvironment() {
		return nil, nil
	}
	c.Instance = d.identity()
	t, err := otlp.New(otlp.Options{
		Tracing: c, Version: version,
		Report: func(queries, spans uint64, why error) {
			d.log.Warn().Err(why).Uint64("queries", queries).Uint64("spans", spans).Msg("traces cannot be sent and are lost; queries are not affected")
		},
	})
	if err == nil {
		d.log.Info().Str("endpoint", c.Endpoint).Float64("sample", c.Sample).Msg("tracing queries")
	}
	return t, err
}

// identity distinguishes daemons with the same service name in traces: by the configured
// instance, the GPU, or the address.
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

// closeTracer sends the queued trace spans. If the collector does not accept them in time,
// that is not an error of the daemon.
func (d *Daemon) closeTracer() {
	if d.tracer == nil {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), otlp.FlushTime)
	defer cancel()
	if err := d.tracer.Close(limit); err != nil {
		d.log.Warn().Err(err).Msg("traces were lost")
	}
}

// Config returns the configuration in effect, expanded.
func (d *Daemon) Config() config.Config {
	d.configured.Lock()
	defer d.configured.Unlock()
	return d.config
}

// configure changes the configuration in effect. change must replace lists instead of
// modifying them, because readers hold copies of the old slices.
func (d *Daemon) configure(change func(*config.Config)) {
	d.configured.Lock()
	defer d.configured.Unlock()
	change(&d.config)
}

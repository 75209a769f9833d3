package daemon

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/gpu"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/daemon/residents"
	"github.com/overlapd/overlapd/executor"
	"github.com/overlapd/overlapd/overlap/journal"
	"github.com/overlapd/overlapd/predictor"
	"github.com/overlapd/overlapd/training"
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
	config  effective
	log     zerolog.Logger
	state   *State
	keeper  *loop.Keeper
	gpus    []*gpu.GPU
	devices pool
	backend *loop.Backend

	// residents is nil if all models are loaded at the start.
	residents *residents.Set

	// recorder is nil without metrics.
	recorder *metrics.Recorder

	// decisions is nil without a decision log.
	decisions *journal.Writer

	// tracer is nil if queries are not traced.
	tracer *otlp.Tracer
	front  front
	access *access.Access

	// reloading is locked by a running reload.
	reloading sync.Mutex

	// failed receives why the daemon must end by itself. Only the first error counts.
	failed chan error

	// life is the context of everything besides serving. die cancels it.
	life context.Context
	die  context.CancelFunc

	// running counts the scheduler and the goroutines it starts. close waits for them.
	running sync.WaitGroup

	// keeping counts the state writer, which ends last.
	keeping sync.WaitGroup
}

// New opens everything that can fail: the addresses, the state file and the models. Nothing
// is served before Run. The configuration must be valid. After an error everything is
// closed.
func New(c config.Config, o Options) (d *Daemon, err error) {
	whole := onNodes(c.Expanded(), o.Nodes)
	c = config.Divided(whole, c.Policy)
	d = &Daemon{config: effective{config: c}, log: o.Log, failed: make(chan error, 1)}
	d.life, d.die = context.WithCancel(context.Background())
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	// With fake workers there are no processes to bind to cores.
	if o.workers == nil {
		if err = CheckCores(&c); err != nil {
			return d, err
		}
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
		config: c, log: o.Log, text: o.Device, runtime: o.Runtime, state: d.state, cores: o.cores(), cpus: slices.Concat(o.Nodes...), life: d.life, failed: d.failed,
	}
	if c.Emulated() {
		if d.devices, err = emulate(one, &o); err != nil {
			return d, err
		}
	}
	if !o.Offline {
		// Addresses are opened before GPUs, which take seconds and change the host.
		if err = d.openAccess(&c); err != nil {
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
	if err = d.devices.readTexts(&c, nil); err != nil {
		return d, err
	}
	// The source is asked before the loop begins, which looks for a stored predictor.
	d.state.takeSource(d.life, c.Predictor.Source, d.devices, d.log)
	if len(d.gpus) > 0 || c.Emulated() {
		o.Processors = 0 // driver calls block, and an emulated device polls for the end of a span
	}
	loaded := c.AtStart()
	if err = d.openLoop(&loaded, &o); err != nil || o.Offline {
		return d, err
	}
	if c.Models.Load == config.LoadOnDemand || c.Models.Load == config.LoadByRequest {
		d.residents = d.newResidents()
	}
	return d, d.openEndpoints(&c, &o)
}

// Config returns the configuration in effect, expanded.
func (d *Daemon) Config() config.Config { return d.config.get() }

// Device describes the devices that services run on.
func (d *Daemon) Device() string { return d.devices.text() }

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
		c := d.Config()
		d.log.Info().Stringer("address", d.Addr()).Str("policy", c.Policy).Int("services", len(c.Services)).Msg("listening")
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
	d.running.Wait()
	if d.decisions != nil {
		errs = append(errs, d.decisions.Close())
	}
	closeTracer(d.tracer, d.log)
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

// openLoop creates the loop and everything of it that can fail.
func (d *Daemon) openLoop(c *config.Config, o *Options) (err error) {
	if d.decisions, err = openDecisions(c, d.log); err != nil {
		return err
	}
	d.devices.account()
	stored := &profiles{d.state, d.keeper, d.devices, d.log}
	l := loop.Options{
		Log: d.log, Learning: stored.learning(c, o.Fit), Fit: d.fitting(o.Fit), Keeper: d.keeper, Journal: d.decisions, Profiles: stored,
		Header: journal.Header{Version: o.Version, Commit: o.Commit, Device: d.Device()}, Life: d.life, Goroutines: &d.running,
		Processors: o.Processors,
	}
	if l.Move = o.move; l.Move == nil {
		l.Move = move
	}
	var specs [][]executor.ServiceSpec
	if l.Places, specs, err = d.devices.placeAll(c); err != nil {
		return err
	}
	for i, u := range d.devices {
		l.Devices = append(l.Devices, u.describe(o, specs[i]))
	}
	if c.Metrics {
		d.recorder = metrics.NewRecorder(c.Names())
		l.Listeners = append(l.Listeners, d.recorder)
	}
	if o.listener != nil {
		l.Listeners = append(l.Listeners, o.listener)
	}
	d.backend, err = loop.New(*c, l)
	return err
}

// move moves a batch between the workers of two devices, which must be executors.
func move(number uint64, from, to loop.Workers, batch executor.SpanRequest, planned time.Duration) error {
	return executor.Move(number, from.(*executor.Executor), to.(*executor.Executor), batch, planned)
}

// openDecisions opens the decision log, or returns nil if none is configured.
func openDecisions(all *config.Config, log zerolog.Logger) (*journal.Writer, error) {
	c := &all.Decisions
	if !c.Log {
		return nil, nil
	}
	o := journal.DefaultOptions()
	o.MaxFileBytes, o.MaxFiles = c.FileBytes, c.Files
	o.Stopped = func(err error) {
		log.Error().Err(err).Msg("writing the decision log failed and is retried; serving continues: free space in the state folder")
	}
	o.Resumed = func(lost uint64) {
		log.Info().Uint64("lost", lost).Msg("writing the decision log resumed")
	}
	return journal.Open(all.StateDir, o)
}

// fitting returns a function that fits a predictor after storing the isolated latencies that
// go with it, so that readers of the state file find both.
func (d *Daemon) fitting(fit loop.FitFunc) loop.FitFunc {
	if fit == nil {
		return nil
	}
	return func(ctx context.Context, data *training.Dataset, operators map[string][]training.OperatorTimes) (*predictor.File, error) {
		d.saveProfiles()
		return fit(ctx, data, operators)
	}
}

// saveProfiles stores what was measured of every service that has been ready.
func (d *Daemon) saveProfiles() {
	defer d.backend.Broaden()()
	solo, calibrations := d.backend.Learned()
	for key, known := range solo {
		if err := d.state.save(loop.SoloProfiles, key, known); err != nil {
			d.log.Warn().Err(err).Str("of", key).Msg("storing a measurement failed")
		}
	}
	if len(calibrations) == 0 {
		return
	}
	if err := d.state.saveCalibrations(calibrations); err != nil {
		d.log.Warn().Err(err).Msg("storing the accuracy of predictors failed")
	}
}

// start starts the loop, then the monitoring of GPUs, then the workers.
func (d *Daemon) start() error {
	// The loop must run before workers report events to it.
	d.backend.Begin()
	if d.residents != nil {
		c := d.Config()
		d.backend.Order(c.Names())
		d.residents.Admit(&c, c.Services...)
		d.running.Go(d.residents.Run)
	}
	for _, u := range d.devices {
		if u.part != nil && d.devices.firstOn(u.part) == u {
			d.watchGPU(u.part)
		}
	}
	return d.backend.Start()
}

// watchGPU starts the goroutines that sample a part of a GPU and handle failures of its MPS
// server, which affect the workers of all devices on the part.
func (d *Daemon) watchGPU(part *gpu.Part) {
	d.running.Go(func() { part.Sample(d.life) })
	var all clients
	var on []int
	for _, u := range d.devices {
		if workers, ok := d.backend.Workers(u.index).(*executor.Executor); ok && u.part == part {
			all, on = append(all, workers), append(on, u.index)
		}
	}
	if len(all) == 0 || !part.HasMPS() {
		return
	}
	lost := func(err error) {
		for _, index := range on {
			d.backend.LoseWorkers(index, err)
		}
	}
	d.running.Go(func() { part.Watch(d.life, all, lost, d.log) })
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
	end, cancel := context.WithTimeout(context.Background(), d.Config().DrainTimeout)
	defer cancel()
	_ = d.backend.StopMeasuring(end) // close reports what is left
	d.saveProfiles()
	return last, d.close()
}

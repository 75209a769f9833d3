package daemon

import (
	"context"
	"errors"
	"net"
	"os"
	"slices"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
)

// openEndpoints makes what serves clients.
func (d *Daemon) openEndpoints(c *config.Config, o *Options) (err error) {
	d.face = d.front()
	q := &query.Server{
		Host: d.face, Memory: query.NewBudget(c.Limits.MemoryBytes), Connections: query.NewBudget(int64(c.Limits.Connections)),
		Version: o.Version, Log: d.log,
	}
	if d.emulation != nil {
		q.Label = config.DeviceEmulated
	}
	if d.tracer, err = d.newTracer(o.Version); err != nil {
		return err
	}
	if d.tracer != nil {
		q.Tracer = d.tracer
	}
	h := http.Options{
		Queries: q, Access: d.access, Status: d.face.Status, Timelines: d.face.Timelines,
		OpenMetrics: !c.Access.Metrics, NotStored: d.storage().faults,
	}
	if c.Metrics {
		h.Metrics = metrics.NewExporter(d.telling(newScrapers(d.instances, o.Version, c.Policy))).Text
	}
	if d.endpoint, err = http.NewEndpoint(c.Limits, h); err != nil {
		return err
	}
	d.remote.open(q, c.Limits, d.access)
	return nil
}

// openAccess reads who may ask, and logs what is unsafe about it.
func (d *Daemon) openAccess() (err error) {
	d.access, err = access.Open(accessOptions(&d.config, func(err error) {
		if err != nil {
			d.log.Error().Err(err).Msg("changed tokens or certificates cannot be used; those before stay in use")
			return
		}
		d.log.Info().Msg("changed tokens or certificates are in use now")
	}))
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(d.config.Exposures(), d.access.Warnings(), d.config.OpenFolders(os.Geteuid())) {
		d.log.Warn().Msg(w)
	}
	return nil
}

func accessOptions(c *config.Config, changed func(error)) access.Options {
	return access.Options{
		TokenFile: c.Access.TokenFile, Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.ClientCA,
		MinVersion: c.TLS.MinVersion, Changed: changed,
	}
}

// CheckAccess reads the files that say who may ask. It returns what is unsafe
// about them and about the addresses, each with a remedy.
func CheckAccess(c *config.Config) (warnings []string, err error) {
	a, err := access.Open(accessOptions(c, nil))
	if err != nil {
		return c.Exposures(), err
	}
	return slices.Concat(c.Exposures(), a.Warnings(), c.OpenFolders(-1)), nil // who asks need not be the daemon's user
}

// remoteEndpoint is the endpoint of gRPC: nothing if it is off.
type remoteEndpoint struct {
	listener net.Listener
	server   *rpc.Server
}

// listen opens an address, unless it is "".
func (r *remoteEndpoint) listen(address string) (err error) {
	if address != "" {
		r.listener, err = http.Listen(address)
	}
	return err
}

// open makes the server.
func (r *remoteEndpoint) open(q *query.Server, l config.Limits, a *access.Access) {
	if r.listener != nil {
		r.server = rpc.New(q, l, a)
	}
}

func (r *remoteEndpoint) serve() error { return r.server.Serve(r.listener) }

func (r *remoteEndpoint) addr() net.Addr {
	if r.listener == nil {
		return nil
	}
	return r.listener.Addr()
}

// shutdown waits for the calls that were accepted, in a goroutine of its own,
// so that both protocols stop at once. What it returns is told once.
func (r *remoteEndpoint) shutdown(ctx context.Context) <-chan error {
	stopped := make(chan error, 1)
	if r.server == nil {
		stopped <- nil
		return stopped
	}
	go func() { stopped <- r.server.Shutdown(ctx) }()
	return stopped
}

// close closes the listener of a daemon that did not run.
func (r *remoteEndpoint) close() error {
	if r.listener == nil {
		return nil
	}
	if err := r.listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// newTracer returns what traces the queries of a daemon, or nil if none is
// configured.
func (d *Daemon) newTracer(version string) (*otlp.Tracer, error) {
	c := &d.config.Tracing
	if c.Endpoint == "" && !tracing.FromEnvironment() {
		return nil, nil
	}
	t, err := otlp.New(otlp.Options{
		Endpoint: c.Endpoint, Sample: c.Sample, HeadersFile: c.HeadersFile,
		CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Service: c.Service, Instance: d.identity(), Version: version,
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
	case len(d.instances) == 1 && d.instances[0].part != nil && d.instances[0].part.UUID != "":
		return d.instances[0].part.UUID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return host + "/" + d.config.Listen
}

// telling adds what became of traces, and what is not stored, to what a scrape
// tells.
func (d *Daemon) telling(s scrapers) func() *metrics.Snapshot {
	tracer, storage := d.tracer, d.storage()
	return func() *metrics.Snapshot {
		snap := s.snapshot()
		snap.Traces = tracer.Counts()
		storage.count(snap)
		return snap
	}
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

// front returns what the daemon's endpoints speak to.
func (d *Daemon) front() face {
	if len(d.instances) == 1 {
		return d.instances[0].backend
	}
	f := new(front)
	for _, u := range d.instances {
		f.backends = append(f.backends, u.backend)
	}
	f.gather(d.config.Services)
	return f
}

func (d *Daemon) storage() *storage {
	if d.state == nil {
		return nil
	}
	s := &storage{state: d.state.db}
	for _, u := range d.instances {
		if u.decisions != nil {
			s.decisions = append(s.decisions, u.decisions)
		}
	}
	return s
}

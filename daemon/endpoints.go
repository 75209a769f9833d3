package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/loop"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/residents"
	"github.com/overlapd/overlapd/daemon/rpc"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/daemon/text"
)

// accessOptions returns the access options of a configuration.
func accessOptions(c *config.Config, changed func(error)) access.Options {
	return access.Options{
		TokenFile: c.Access.TokenFile, Cert: c.TLS.Cert, Key: c.TLS.Key, CA: c.TLS.ClientCA,
		MinVersion: c.TLS.MinVersion, Changed: changed,
	}
}

// CheckAccess reads the token and certificate files. It returns warnings about them, the
// addresses and the folders, each with a remedy.
func CheckAccess(c *config.Config) (warnings []string, err error) {
	a, err := access.Open(accessOptions(c, nil))
	if err != nil {
		return c.Exposures(), err
	}
	return slices.Concat(c.Exposures(), a.Warnings(), c.OpenFolders(-1)), nil // the caller may be another user than the daemon
}

// openEndpoints creates the HTTP and gRPC servers and what they share.
func (d *Daemon) openEndpoints(c *config.Config, o *Options) (err error) {
	q := &query.Server{
		Host: d.backend, Repository: d.repository(o.Reread), Memory: query.NewBudget(c.Limits.MemoryBytes), Connections: query.NewPlaces(c.Limits.Connections),
		Version: o.Version, Log: d.log,
	}
	last := func() *status.Status { s, _ := d.backend.StatusWithin(reportWait, false); return s }
	reports := &loadReports{status: last, devices: float64(len(d.devices)), epoch: time.Now()}
	q.Load = reports.text
	d.running.Go(func() { reports.keep(d.life) })
	if c.Emulated() {
		q.Label = config.DeviceEmulated
	}
	if d.tracer, err = newTracer(c, d.devices, o.Version, d.log); err != nil {
		return err
	}
	// A nil *otlp.Tracer in the interface would not be nil.
	if d.tracer != nil {
		q.Tracer = d.tracer
	}
	p, texts := d.published(), text.New(q, d.backend.Broaden)
	h := http.Options{
		Queries: q, Access: d.access, Status: p.status, Timeline: d.backend.Timeline(), OpenMetrics: !c.Access.Metrics,
		Texts: texts, Lasting: d.front.lasting,
	}
	if c.Metrics {
		h.Metrics = p.exporter(o.Version, c.Policy)
	}
	if d.front.endpoint, err = http.NewEndpoint(c.Limits, h); err != nil {
		return err
	}
	if d.front.remote != nil {
		d.front.rpc = rpc.New(q, texts, c.Limits, d.access)
	}
	return nil
}

// repository returns what loads and unloads models for clients.
func (d *Daemon) repository(reread func(model string) (config.Config, error)) *repository {
	return &repository{
		residents: d.residents, config: d.Config, reread: reread, turn: make(chan struct{}, 1),
		reload: func(next config.Config) (*config.Reloaded, error) { return d.Reload(d.life, next, nil) },
	}
}

// openAccess reads tokens and certificates, and logs warnings about them.
func (d *Daemon) openAccess(c *config.Config) (err error) {
	d.access, err = access.Open(accessOptions(c, func(err error) {
		if err != nil {
			d.log.Error().Err(err).Msg("changed tokens or certificates are invalid; the previous ones stay in use")
			return
		}
		d.log.Info().Msg("changed tokens or certificates are in use")
	}))
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(c.Exposures(), d.access.Warnings(), c.OpenFolders(os.Geteuid())) {
		d.log.Warn().Msg(w)
	}
	return nil
}

// newTracer returns the tracer, or nil if tracing is not configured.
func newTracer(all *config.Config, devices pool, version string, log zerolog.Logger) (*otlp.Tracer, error) {
	c := all.Tracing
	if c.Endpoint == "" && !tracing.FromEnvironment() {
		return nil, nil
	}
	c.Instance = identity(all, devices)
	t, err := otlp.New(otlp.Options{
		Tracing: c, Version: version,
		Report: func(queries, spans uint64, why error) {
			log.Warn().Err(why).Uint64("queries", queries).Uint64("spans", spans).Msg("traces cannot be sent and are lost; queries are not affected")
		},
	})
	if err == nil {
		log.Info().Str("endpoint", c.Endpoint).Float64("sample", c.Sample).Msg("tracing queries")
	}
	return t, err
}

// identity distinguishes daemons with the same service name in traces: by the configured
// instance, the GPU, or the address.
func identity(c *config.Config, devices pool) string {
	switch {
	case c.Tracing.Instance != "":
		return c.Tracing.Instance
	case len(devices) == 1 && devices[0].part != nil && devices[0].part.UUID != "":
		return devices[0].part.UUID
	}
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	return host + "/" + c.Listen
}

// closeTracer sends the queued trace spans. If the collector does not accept them in time,
// that is not an error of the daemon.
func closeTracer(t *otlp.Tracer, log zerolog.Logger) {
	if t == nil {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), otlp.FlushTime)
	defer cancel()
	if err := t.Close(limit); err != nil {
		log.Warn().Err(err).Msg("traces were lost")
	}
}

// scrapeTimeout is how long a scrape waits for a new status. After that it uses the last
// one, because a stalled scheduler is what a scrape must show.
const scrapeTimeout = 100 * time.Millisecond

// published is what the daemon says about itself: the status, and the metrics.
type published struct {
	backend *loop.Backend
	devices pool

	// recorder is nil without metrics, tracer if queries are not traced.
	recorder *metrics.Recorder
	tracer   *otlp.Tracer

	// state is nil without a state file.
	state *State

	// decisions is nil without a decision log.
	decisions decisionLog

	// residents is nil if all models are loaded at the start.
	residents *residents.Set
}

// decisionLog is a journal.Writer. Tests replace it.
type decisionLog interface {
	Lost() (events uint64, fault error)
}

// published returns what the daemon says about itself.
func (d *Daemon) published() *published {
	p := &published{backend: d.backend, devices: d.devices, recorder: d.recorder, tracer: d.tracer, state: d.state, residents: d.residents}
	// A nil *journal.Writer in the interface would not be nil.
	if d.decisions != nil {
		p.decisions = d.decisions
	}
	return p
}

// exporter returns a function that answers scrapes.
func (p *published) exporter(version, policy string) func() ([]byte, error) {
	return metrics.NewExporter(version, policy, p.recorder, p.scrape).Text
}

// scrape returns what the metrics need besides the recorder's counts.
func (p *published) scrape() (s metrics.Scrape) {
	s.Status, _ = p.backend.StatusWithin(scrapeTimeout, false)
	p.weigh(s.Status)
	// The load is published separately, and knows whether the scheduler makes progress.
	s.Status.Load = *p.backend.Timeline().Load(p.backend.Live())
	s.Traces = p.tracer.Counts()
	p.unstored(&s)
	return s
}

// weigh adds the current memory of the workers to a status.
func (p *published) weigh(s *status.Status) {
	s.Services = slices.Clone(s.Services) // others share the slice
	p.residents.Show(s)
	for i := range s.Services {
		to := &s.Services[i]
		for _, u := range p.devices {
			if worker, err := p.backend.Workers(u.index).State(to.ID); err == nil {
				to.IntermediateBytes += worker.IntermediateBytes
				to.ResidentBytes += worker.ResidentBytes
			}
		}
	}
}

// status returns the current status, or false if the scheduler goroutine does not respond.
func (p *published) status() (*status.Status, bool) {
	s, ok := p.backend.FullStatus()
	if !ok {
		return nil, false
	}
	p.weigh(s)
	s.NotStored = p.unstored(new(metrics.Scrape))
	return s, true
}

// unstored adds to a scrape what the daemon cannot store, and returns a sentence for each.
// The daemon continues to serve, so it must be reported.
func (p *published) unstored(to *metrics.Scrape) (faults []string) {
	c := &to.Storage
	if p.state != nil {
		c.StateSetAside = p.state.aside
		if err := p.state.db.Lost(); err != nil {
			c.StateLost, faults = true, append(faults, err.Error())
		}
	}
	if p.decisions != nil {
		lost, err := p.decisions.Lost()
		if c.DecisionsLost = lost; err != nil {
			c.LogStopped = true
			faults = append(faults, fmt.Sprintf("writing the decision log failed, and %d events were lost: %v; it resumes when the state folder can be written", lost, err))
		}
	}
	return faults
}

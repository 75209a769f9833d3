package daemon

import (
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/http"
	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
	"github.com/overlapd/overlapd/daemon/statefile"
	"github.com/overlapd/overlapd/daemon/status"
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
		Host: d.backend, Memory: query.NewBudget(c.Limits.MemoryBytes), Connections: query.NewPlaces(c.Limits.Connections),
		Version: o.Version, Log: d.log,
	}
	reports := &loadReports{devices: float64(len(d.devices)), epoch: time.Now()}
	reports.status = func() *status.Status { s, _ := d.backend.StatusWithin(reportWait, false); return s }
	q.Load = reports.text
	d.goroutines.Go(func() { reports.keep(d.life) })
	if d.config.Emulated() {
		q.Label = config.DeviceEmulated
	}
	if d.tracer, err = d.newTracer(o.Version); err != nil {
		return err
	}
	// A nil *otlp.Tracer in the interface would not be nil.
	if d.tracer != nil {
		q.Tracer = d.tracer
	}
	h := http.Options{
		Queries: q, Access: d.access, Status: d.status, Timeline: d.backend.Timeline(), OpenMetrics: !c.Access.Metrics,
		Lasting: d.front.lasting,
	}
	if c.Metrics {
		h.Metrics = d.newExporter(o.Version)
	}
	if d.front.endpoint, err = http.NewEndpoint(c.Limits, h); err != nil {
		return err
	}
	if d.front.remote != nil {
		d.front.rpc = rpc.New(q, c.Limits, d.access)
	}
	return nil
}

// openAccess reads tokens and certificates, and logs warnings about them.
func (d *Daemon) openAccess() (err error) {
	d.access, err = access.Open(accessOptions(&d.config, func(err error) {
		if err != nil {
			d.log.Error().Err(err).Msg("changed tokens or certificates are invalid; the previous ones stay in use")
			return
		}
		d.log.Info().Msg("changed tokens or certificates are in use")
	}))
	if err != nil {
		return err
	}
	for _, w := range slices.Concat(d.config.Exposures(), d.access.Warnings(), d.config.OpenFolders(os.Geteuid())) {
		d.log.Warn().Msg(w)
	}
	return nil
}

// scrapeTimeout is how long a scrape waits for a new status. After that it uses the last
// one, because a stalled scheduler is what a scrape must show.
const scrapeTimeout = 100 * time.Millisecond

// newExporter returns a function that answers scrapes.
func (d *Daemon) newExporter(version string) func() ([]byte, error) {
	return metrics.NewExporter(version, d.config.Policy, d.recorder, d.scrape).Text
}

// scrape returns what the metrics need besides the recorder's counts.
func (d *Daemon) scrape() (s metrics.Scrape) {
	s.Status, _ = d.backend.StatusWithin(scrapeTimeout, false)
	d.weigh(s.Status)
	// The load is published separately, and knows whether the scheduler makes progress.
	s.Load = *d.backend.Timeline().Load(d.backend.Live())
	s.Traces = d.tracer.Counts()
	d.storage().count(&s)
	return s
}

// weigh adds the current memory of the workers to a status.
func (d *Daemon) weigh(s *status.Status) {
	s.Services = slices.Clone(s.Services) // others share the slice
	for i := range s.Services {
		to := &s.Services[i]
		for _, u := range d.devices {
			if worker, err := d.backend.Workers(u.index).State(to.ID); err == nil {
				to.IntermediateBytes += worker.IntermediateBytes
				to.ResidentBytes += worker.ResidentBytes
			}
		}
	}
}

// status returns the current status, or false if the scheduler goroutine does not respond.
func (d *Daemon) status() (*status.Status, bool) {
	s, ok := d.backend.FullStatus()
	if !ok {
		return nil, false
	}
	d.weigh(s)
	s.NotStored = d.storage().count(new(metrics.Scrape))
	return s, true
}

// storage says what the daemon cannot store. The daemon continues to serve, so it must be
// reported.
type storage struct {
	// state is nil if there is no state file.
	state *statefile.File

	// aside is set if the state file was damaged when the daemon started.
	aside bool

	// decisions is nil if there is no decision log.
	decisions decisionLog
}

// decisionLog is a journal.Writer. Tests replace it.
type decisionLog interface {
	Lost() (events uint64, fault error)
}

// storage returns the current storage of the daemon.
func (d *Daemon) storage() (s storage) {
	if d.state != nil {
		s.state, s.aside = d.state.db, d.state.aside
	}
	if d.decisions != nil {
		s.decisions = d.decisions
	}
	return s
}

// count adds what cannot be stored to a scrape, and returns a sentence for each.
func (s storage) count(to *metrics.Scrape) (faults []string) {
	c := &to.Storage
	c.StateSetAside = s.aside
	if s.state != nil && s.state.Lost() != nil {
		c.StateLost, faults = true, append(faults, s.state.Lost().Error())
	}
	if s.decisions != nil {
		lost, err := s.decisions.Lost()
		if c.DecisionsLost = lost; err != nil {
			c.LogStopped = true
			faults = append(faults, fmt.Sprintf("writing the decision log failed, and %d events were lost: %v; it resumes when the state folder can be written", lost, err))
		}
	}
	return faults
}

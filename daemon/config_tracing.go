package daemon

import (
	"context"
	"os"

	"github.com/overlapd/overlapd/daemon/metrics"
	"github.com/overlapd/overlapd/daemon/tracing"
)

// TracingConfig says which queries are traced, and where their spans go.
type TracingConfig struct {
	Endpoint    string  // URL of a collector, "" for that of the environment, or none
	Sample      float64 // share of the queries whose client does not say, 0 to 1
	HeadersFile string  // sent with every export, "" for none
	CAFile      string  // that signed the collector's certificate, "" for the system's
	CertFile    string  // of the daemon, "" for none
	KeyFile     string
	Service     string // service.name
	Instance    string // service.instance.id, "" for the GPU's UUID or the address
}

// maxNameBytes limits the names of a daemon in traces.
const maxNameBytes = 256

func (t *TracingConfig) keys(k keys) {
	k.text("endpoint", &t.Endpoint)
	k.ratio("sample", &t.Sample)
	k.text("headers_file", &t.HeadersFile)
	k.text("ca_file", &t.CAFile)
	k.text("cert_file", &t.CertFile)
	k.text("key_file", &t.KeyFile)
	k.text("service", &t.Service)
	k.text("instance", &t.Instance)
}

func (t *TracingConfig) check(k *checker) {
	if t.Endpoint != "" {
		if _, err := tracing.CheckEndpoint(t.Endpoint); err != nil {
			k.fault("endpoint", "%v", err)
		}
	}
	if !(t.Sample >= 0 && t.Sample <= 1) {
		k.fault("sample", "must be in [0, 1], not %v", t.Sample)
	}
	if (t.CertFile == "") != (t.KeyFile == "") {
		k.fault("cert_file", "cert_file and key_file belong together: set both or none")
	}
	if t.Service == "" || len(t.Service) > maxNameBytes {
		k.fault("service", "must have 1 to %d bytes", maxNameBytes)
	}
	if len(t.Instance) > maxNameBytes {
		k.fault("instance", "must have at most %d bytes", maxNameBytes)
	}
}

// files are those of which the paths are relative to the configuration.
func (t *TracingConfig) files() []*string {
	return []*string{&t.HeadersFile, &t.CAFile, &t.CertFile, &t.KeyFile}
}

// newTracer returns what traces the queries of a daemon, or nil if none is
// configured.
func (d *Daemon) newTracer(version string) (*tracing.Tracer, error) {
	c := &d.config.Tracing
	if c.Endpoint == "" && !tracing.FromEnvironment() {
		return nil, nil
	}
	t, err := tracing.New(tracing.Options{
		Endpoint: c.Endpoint, Sample: c.Sample, HeadersFile: c.HeadersFile,
		CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Service: c.Service, Instance: d.instance(), Version: version,
		Report: func(l tracing.Loss) {
			d.log.Warn().Err(l.Err).Uint64("queries", l.Queries).Uint64("spans", l.Spans).Msg("traces are lost; serving goes on")
		},
	})
	if err == nil {
		d.log.Info().Str("endpoint", c.Endpoint).Float64("sample", c.Sample).Msg("queries are traced")
	}
	return t, err
}

// instance tells daemons of one name apart: by what they run on, or by where
// they listen.
func (d *Daemon) instance() string {
	switch {
	case d.config.Tracing.Instance != "":
		return d.config.Tracing.Instance
	case len(d.units) == 1 && d.part != nil && d.part.UUID != "":
		return d.part.UUID
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
	tracer, storage := d.endpoint.tracer, d.endpoint.storage
	return func() *metrics.Snapshot {
		snap := s.snapshot()
		n := tracer.Counts()
		snap.Traces = metrics.Traces{Queries: n.Queries, Dropped: n.Dropped, Exported: n.Exported, Failed: n.Failed}
		snap.Storage = storage.counts()
		return snap
	}
}

// closeTracer sends what waits. A collector that does not take it in time is no
// failure of the daemon.
func (d *Daemon) closeTracer() {
	if d.endpoint == nil {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), tracing.FlushTime)
	defer cancel()
	if err := d.endpoint.tracer.Close(limit); err != nil {
		d.log.Warn().Err(err).Msg("traces are lost")
	}
}

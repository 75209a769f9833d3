package daemon

import (
	"context"
	"os"

	"github.com/overlapd/overlapd/daemon/observe/metrics"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
)

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
		Service: c.Service, Instance: d.instance(), Version: version,
		Report: func(l otlp.Loss) {
			d.log.Warn().Err(l.Err).Uint64("queries", l.Queries).Uint64("spans", l.Spans).Msg("traces are lost; serving goes on")
		},
	})
	if err == nil {
		d.log.Info().Str("endpoint", c.Endpoint).Float64("sample", c.Sample).Msg("queries are traced")
	}
	return t, err
}

// instance names a daemon among those of one name: by what it runs on, or by where
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
	tracer, storage := d.tracer, d.storage()
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
	if d.tracer == nil {
		return
	}
	limit, cancel := context.WithTimeout(context.Background(), otlp.FlushTime)
	defer cancel()
	if err := d.tracer.Close(limit); err != nil {
		d.log.Warn().Err(err).Msg("traces are lost")
	}
}

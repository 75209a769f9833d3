package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/internal/fakes/collector"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
)

// A daemon has a tracer if the configuration or the environment names a
// collector, and is refused if it cannot have the one that is configured.
func TestNewTracer(t *testing.T) {
	log := fakeworkers.NewLog()
	daemonOf := func(change func(*config.Config)) *Daemon {
		c := config.Default()
		change(&c)
		return &Daemon{pool: pool{devices: []*poolDevice{{}}, log: zerolog.New(log)}, config: c}
	}
	if tracer, err := daemonOf(func(*config.Config) {}).newTracer("test"); tracer != nil || err != nil {
		t.Errorf("none is configured: %v, %v", tracer, err)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	d := daemonOf(func(c *config.Config) { c.Tracing.Endpoint, c.Tracing.HeadersFile = "http://localhost:4318", absent })
	if _, err := d.newTracer("test"); !errors.Is(err, otlp.ErrHeaders) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its headers are not there: %v", err)
	}
	c := collector.New(t)
	c.Refuse(100, 403)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	d = daemonOf(func(*config.Config) {})
	tracer, err := d.newTracer("test")
	if err != nil || tracer == nil {
		t.Fatalf("the environment names one: %v", err)
	}
	d.tracer = tracer
	tracer.Finish(tracer.Begin(tracing.Parent{}))
	d.closeTracer()
	says(t, log.String(), "tracing queries", "traces cannot be sent and are lost; queries are not affected", "403")
	d.backend = newBackend(t, fakeworkers.Config(1, nil), nil, nil).Backend
	if n := d.scrape().Traces; n.Queries != 1 || n.Failed != 1 {
		t.Errorf("a scrape tells %+v", n)
	}
}

func TestInstanceOfTraces(t *testing.T) {
	d := &Daemon{pool: pool{devices: []*poolDevice{{}}}, config: config.Default()}
	if got := d.identity(); !strings.HasSuffix(got, "/"+d.config.Listen) || strings.HasPrefix(got, "/") {
		t.Errorf("%q", got)
	}
	if d.config.Tracing.Instance = "blue"; d.identity() != "blue" {
		t.Errorf("%q", d.identity())
	}
}

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
	conf := config.Default()
	tracerOf := func() (*otlp.Tracer, error) { return newTracer(&conf, pool{{}}, "test", zerolog.New(log)) }
	if tracer, err := tracerOf(); tracer != nil || err != nil {
		t.Errorf("none is configured: %v, %v", tracer, err)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	conf.Tracing.Endpoint, conf.Tracing.HeadersFile = "http://localhost:4318", absent
	if _, err := tracerOf(); !errors.Is(err, otlp.ErrHeaders) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its headers are not there: %v", err)
	}
	c := collector.New(t)
	c.Refuse(100, 403)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	conf = config.Default()
	tracer, err := tracerOf()
	if err != nil || tracer == nil {
		t.Fatalf("the environment names one: %v", err)
	}
	tracer.Finish(tracer.Begin(tracing.Parent{}))
	closeTracer(tracer, zerolog.New(log))
	says(t, log.String(), "tracing queries", "traces cannot be sent and are lost; queries are not affected", "403")
	p := publishedBy(newBackend(t, fakeworkers.Config(1, nil), nil, nil))
	p.tracer = tracer
	if n := p.scrape().Traces; n.Queries != 1 || n.Failed != 1 {
		t.Errorf("a scrape tells %+v", n)
	}
}

func TestInstanceOfTraces(t *testing.T) {
	c := config.Default()
	if got := identity(&c, pool{{}}); !strings.HasSuffix(got, "/"+c.Listen) || strings.HasPrefix(got, "/") {
		t.Errorf("%q", got)
	}
	c.Tracing.Instance = "blue"
	if got := identity(&c, pool{{}}); got != "blue" {
		t.Errorf("%q", got)
	}
}

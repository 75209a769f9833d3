package daemon

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/overlapd/overlapd/daemon/tracing"
	"github.com/overlapd/overlapd/daemon/tracing/collector"
)

func TestParseTracing(t *testing.T) {
	c, err := ParseConfig("/etc/overlapd/overlapd.toml", []byte(minimalConfig+`
[tracing]
endpoint = "https://otlp.example"
sample = 0.25
headers_file = "keys"
ca_file = "/etc/ssl/ca.pem"
service = "translation"
`))
	if err != nil {
		t.Fatal(err)
	}
	want := TracingConfig{Endpoint: "https://otlp.example", Sample: 0.25, HeadersFile: "/etc/overlapd/keys", CAFile: "/etc/ssl/ca.pem", Service: "translation"}
	if c.Tracing != want {
		t.Errorf("got %+v, want %+v", c.Tracing, want)
	}
	again, err := ParseConfig("/etc/overlapd/overlapd.toml", c.TOML())
	if err != nil || again.Tracing != want {
		t.Errorf("as printed: %+v, %v", again.Tracing, err)
	}
	if c, err = ParseConfig("a", []byte(minimalConfig+"[tracing]\nsample = 1\n")); err != nil || c.Tracing.Sample != 1 {
		t.Errorf("a whole number: %v, %v", c.Tracing.Sample, err)
	}
}

func TestTracingFaults(t *testing.T) {
	for line, key := range map[string]string{
		`endpoint = "collector:4317"`: "tracing.endpoint",
		`sample = 1.5`:                "tracing.sample",
		`sample = nan`:                "tracing.sample",
		`sample = "half"`:             "tracing.sample",
		`cert_file = "a"`:             "tracing.cert_file",
		`service = ""`:                "tracing.service",
		`instance = "` + strings.Repeat("x", maxNameBytes) + `x"`: "tracing.instance",
		`protocol = "grpc"`: "tracing.protocol",
	} {
		_, err := ParseConfig("a.toml", []byte(minimalConfig+"[tracing]\n"+line+"\n"))
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Key != key || faults[0].Line != 5 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// A daemon has a tracer if the configuration or the environment names a
// collector, and is refused if it cannot have the one that is configured.
func TestNewTracer(t *testing.T) {
	log := new(logBuffer)
	daemonOf := func(change func(*TracingConfig)) *Daemon {
		c := Default()
		change(&c.Tracing)
		return &Daemon{unit: &unit{}, units: make([]*unit, 1), config: c, log: zerolog.New(log)}
	}
	if tracer, err := daemonOf(func(*TracingConfig) {}).newTracer("test"); tracer != nil || err != nil {
		t.Errorf("none is configured: %v, %v", tracer, err)
	}
	absent := filepath.Join(t.TempDir(), "absent")
	d := daemonOf(func(c *TracingConfig) { c.Endpoint, c.HeadersFile = "http://localhost:4318", absent })
	if _, err := d.newTracer("test"); !errors.Is(err, tracing.ErrHeaders) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its headers are not there: %v", err)
	}
	c := collector.New(t)
	c.Refuse(100, 403)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	d = daemonOf(func(*TracingConfig) {})
	tracer, err := d.newTracer("test")
	if err != nil || tracer == nil {
		t.Fatalf("the environment names one: %v", err)
	}
	d.endpoint = &Endpoint{tracer: tracer}
	tracer.End(tracer.Begin(tracing.Parent{}))
	d.closeTracer()
	says(t, log.String(), "queries are traced", "traces are lost; serving goes on", "403")
	if n := d.telling(scrapers{newScraper(startInstant(t, 1, nil), "test", "edf")})().Traces; n.Queries != 1 || n.Failed != 1 {
		t.Errorf("a scrape tells %+v", n)
	}
}

func TestInstanceOfTraces(t *testing.T) {
	d := &Daemon{unit: &unit{}, units: make([]*unit, 1), config: Default()}
	if got := d.instance(); !strings.HasSuffix(got, "/"+d.config.Listen) || strings.HasPrefix(got, "/") {
		t.Errorf("%q", got)
	}
	if d.config.Tracing.Instance = "blue"; d.instance() != "blue" {
		t.Errorf("%q", d.instance())
	}
}

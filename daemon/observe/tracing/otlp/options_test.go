package otlp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/internal/fakes/collector"
)

func TestCheckEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"http://localhost:4318":         "http://localhost:4318/v1/traces",
		"https://otlp.example/":         "https://otlp.example/v1/traces",
		"https://otlp.example/in/here":  "https://otlp.example/in/here",
		"http://[::1]:4318":             "http://[::1]:4318/v1/traces",
		"localhost:4318":                "",
		"grpc://localhost:4317":         "",
		"http://":                       "",
		"http://user:secret@host":       "",
		"http://host/?key=1":            "",
		"http://host/#there":            "",
		"http://host:4318/v1/traces\n":  "",
		"":                              "",
		"http://host:port":              "",
		"unix:///run/collector.sock":    "",
		"http://collector:4318/v1/more": "http://collector:4318/v1/more",
	} {
		got, err := tracing.CheckEndpoint(text)
		if got != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, tracing.ErrEndpoint) {
			t.Errorf("%q: %q, %v; want %q", text, got, err, want)
		}
	}
}

func TestParseHeaders(t *testing.T) {
	h, err := parseHeaders([]byte("# keys\n\nAuthorization: Bearer a:b\r\n x-team :ml \n"))
	if err != nil || len(h) != 2 || h["Authorization"] != "Bearer a:b" || h["x-team"] != "ml" {
		t.Errorf("%v, %v", h, err)
	}
	for name, text := range map[string]string{
		"no colon": "a", "no name": ": b", "a space": "a b: c", "control": "a: b\x01",
	} {
		if _, err := parseHeaders([]byte(text)); !errors.Is(err, ErrHeaders) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), "a b: c") {
			t.Errorf("%s: the error holds what may be a secret", name)
		}
	}
}

func FuzzParseHeaders(f *testing.F) {
	f.Add("a: b")
	f.Add("#\n\n:\r")
	f.Fuzz(func(t *testing.T, text string) {
		h, _ := parseHeaders([]byte(text))
		for name, value := range h {
			if name == "" || strings.ContainsAny(name, " \t:()<>@,;") || strings.ContainsAny(value, "\r\n\x00") {
				t.Errorf("%q: %q", name, value)
			}
		}
	})
}

// Headers of a file, and what the environment says of whose spans they are, go
// along.
func TestHeadersAndEnvironment(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,service.name=other")
	c := collector.New(t)
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("X-Key: secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	asked := make(chan *http.Request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.ServeHTTP(w, r)
		asked <- r
	}))
	defer server.Close()
	tracer, _ := start(t, c, func(o *Options) { o.Endpoint, o.HeadersFile, o.Service = server.URL, file, "mine" })
	q := tracer.Begin(tracing.Parent{})
	fill(q)
	tracer.Finish(q)
	stop(t, tracer)
	all := c.Await(t, 5)
	if r := <-asked; r.URL.Path != "/v1/traces" || r.Header.Get("X-Key") != "secret" {
		t.Errorf("%s %v", r.URL.Path, r.Header)
	}
	if r := all[0].Resource; r["deployment.environment.name"] != "test" || r["service.name"] != "mine" {
		t.Errorf("whose it is: %v", r)
	}
}

// Without an endpoint in the configuration the environment's is taken.
func TestEndpointOfTheEnvironment(t *testing.T) {
	if t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", ""); tracing.FromEnvironment() {
		t.Error("there is none")
	}
	c := collector.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.URL)
	if !tracing.FromEnvironment() {
		t.Error("there is one")
	}
	tracer, _ := start(t, c, func(o *Options) { o.Endpoint = "" })
	q := tracer.Begin(tracing.Parent{})
	fill(q)
	tracer.Finish(q)
	stop(t, tracer)
	c.Await(t, 5)
	if t.Setenv("OTEL_SDK_DISABLED", "true"); tracing.FromEnvironment() {
		t.Error("it is disabled")
	}
}

func TestRefusedOptions(t *testing.T) {
	dir := t.TempDir()
	junk := filepath.Join(dir, "junk")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	absent := filepath.Join(dir, "absent")
	for name, c := range map[string]struct {
		change func(*Options)
		want   error
	}{
		"endpoint":         {func(o *Options) { o.Endpoint = "collector" }, tracing.ErrEndpoint},
		"headers":          {func(o *Options) { o.HeadersFile = junk }, ErrHeaders},
		"no headers":       {func(o *Options) { o.HeadersFile = absent }, os.ErrNotExist},
		"certificates":     {func(o *Options) { o.CAFile = junk }, access.ErrCertificates},
		"no certificates":  {func(o *Options) { o.CAFile = absent }, os.ErrNotExist},
		"own certificate":  {func(o *Options) { o.CertFile, o.KeyFile = junk, junk }, access.ErrCertificates},
		"certificate only": {func(o *Options) { o.CertFile = junk }, access.ErrCertificates},
	} {
		o := Options{Tracing: config.Tracing{Endpoint: "http://localhost:4318"}}
		c.change(&o)
		tracer, err := New(o)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if err == nil {
			tracer.Close(context.Background())
		}
	}
}

package config

import (
	"errors"
	"strings"
	"testing"
)

func TestParseTracing(t *testing.T) {
	c, err := Parse("/etc/overlapd/overlapd.toml", []byte(minimalConfig+`
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
	want := Default().Tracing
	want.Endpoint, want.Sample, want.HeadersFile = "https://otlp.example", 0.25, "/etc/overlapd/keys"
	want.CAFile, want.Service = "/etc/ssl/ca.pem", "translation"
	if c.Tracing != want {
		t.Errorf("got %+v, want %+v", c.Tracing, want)
	}
	again, err := Parse("/etc/overlapd/overlapd.toml", c.TOML())
	if err != nil || again.Tracing != want {
		t.Errorf("as printed: %+v, %v", again.Tracing, err)
	}
	if c, err = Parse("a", []byte(minimalConfig+"[tracing]\nsample = 1\n")); err != nil || c.Tracing.Sample != 1 {
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
		_, err := Parse("a.toml", []byte(minimalConfig+"[tracing]\n"+line+"\n"))
		var faults Faults
		if !errors.As(err, &faults) || len(faults) != 1 || faults[0].Key != key || faults[0].Line != 5 {
			t.Errorf("%s: %v", line, err)
		}
	}
}

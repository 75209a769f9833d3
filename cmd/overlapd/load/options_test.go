package load

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func valid() Options {
	o := DefaultOptions()
	o.URL, o.Services, o.Connections = "http://127.0.0.1:8000", []string{"a"}, 4
	return o
}

func TestResolveImplies(t *testing.T) {
	for _, tc := range []struct {
		name        string
		set         func(*Options)
		scenario    Scenario
		connections int
	}{
		{"connections", func(o *Options) {}, Closed, 4},
		{"rate", func(o *Options) { o.Rate, o.Connections = 10, 0 }, Open, openConnections},
		{"server", func(o *Options) { o.Scenario, o.Rate, o.Connections = Server, 10, 7 }, Server, 7},
		{"single", func(o *Options) { o.Scenario, o.Connections = SingleStream, 0 }, SingleStream, 1},
		{"multi", func(o *Options) {
			o.Scenario, o.Connections, o.Services = MultiStream, 0, []string{"a", "b"}
		}, MultiStream, 16},
		{"offline", func(o *Options) { o.Scenario, o.Connections = Offline, 0 }, Offline, openConnections},
	} {
		o := valid()
		tc.set(&o)
		got, err := o.resolve()
		if err != nil || got.Scenario != tc.scenario || got.Connections != tc.connections {
			t.Errorf("%s: %s with %d connections and error %v, want %s with %d",
				tc.name, got.Scenario, got.Connections, err, tc.scenario, tc.connections)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	for want, set := range map[string]func(*Options){
		"unknown scenario":       func(o *Options) { o.Scenario = "steady" },
		"0 services":             func(o *Options) { o.Services = nil },
		"needs a rate":           func(o *Options) { o.Scenario = Server },
		"has no rate":            func(o *Options) { o.Scenario, o.Rate = Closed, 5 },
		"unknown arrivals":       func(o *Options) { o.Arrivals = "bursty" },
		"has poisson arrivals":   func(o *Options) { o.Scenario, o.Rate, o.Arrivals = Server, 5, Constant },
		"of gamma arrivals":      func(o *Options) { o.Rate, o.Arrivals, o.CV = 5, Gamma, 0 },
		"0 connections":          func(o *Options) { o.Connections = 0 },
		"has 1 connections, not": func(o *Options) { o.Scenario = SingleStream },
		"duration":               func(o *Options) { o.Duration = 0 },
		"warm-up":                func(o *Options) { o.Warmup = -1 },
		"timeout":                func(o *Options) { o.Timeout = maxLatency + 1 },
		"target":                 func(o *Options) { o.Target = -1 },
		"0 samples":              func(o *Options) { o.Scenario, o.Samples = Offline, 0 },
		"requests due":           func(o *Options) { o.Rate, o.Duration = 1e6, time.Hour },
		"want http://host:port":  func(o *Options) { o.URL = "ftp://127.0.0.1:8000" },
		"batch":                  func(o *Options) { o.Batch = 0 },
		"sequence length":        func(o *Options) { o.SeqLen = 0 },
		"integers below":         func(o *Options) { o.MaxID = 0 },
		"0 inputs":               func(o *Options) { o.Inputs = 0 },
		"query timeout":          func(o *Options) { o.QueryTimeout = -1 },
		"priority":               func(o *Options) { o.Priority = -1 },
		`shape of "x"`:           func(o *Options) { o.Shapes = map[string][]int64{"x": {-1}} },
	} {
		o := valid()
		set(&o)
		_, err := o.resolve()
		if !errors.Is(err, ErrOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestResolveReportsAllFaults(t *testing.T) {
	o := valid()
	o.Batch, o.Inputs, o.Timeout = 0, 0, 0
	_, err := o.resolve()
	for _, want := range []string{"batch", "inputs", "timeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not name %s", err, want)
		}
	}
}

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
		open        bool
		connections int
	}{
		{"connections", func(o *Options) {}, false, 4},
		{"rate", func(o *Options) { o.Rate, o.Connections = 10, 0 }, true, openConnections},
		{"rate of two", func(o *Options) { o.Rate, o.Connections, o.Services = 10, 0, []string{"a", "b"} }, true, 2 * openConnections},
		{"both", func(o *Options) { o.Rate, o.Connections = 10, 7 }, true, 7},
	} {
		o := valid()
		tc.set(&o)
		got, err := o.resolve()
		if err != nil || got.open() != tc.open || got.Connections != tc.connections {
			t.Errorf("%s: open %t with %d connections and error %v, want %t with %d",
				tc.name, got.open(), got.Connections, err, tc.open, tc.connections)
		}
	}
}

func TestResolveRefuses(t *testing.T) {
	for want, set := range map[string]func(*Options){
		"0 services":            func(o *Options) { o.Services = nil },
		"is negative":           func(o *Options) { o.Rate = -5 },
		"unknown arrivals":      func(o *Options) { o.Arrivals = "bursty" },
		"of gamma arrivals":     func(o *Options) { o.Rate, o.Arrivals, o.CV = 5, gamma, 0 },
		"0 connections":         func(o *Options) { o.Connections = 0 },
		"duration":              func(o *Options) { o.Duration = 0 },
		"warm-up":               func(o *Options) { o.Warmup = -1 },
		"timeout":               func(o *Options) { o.Timeout = maxLatency + 1 },
		"target":                func(o *Options) { o.Target = -1 },
		"requests due":          func(o *Options) { o.Rate, o.Duration = 1e6, time.Hour },
		"want http://host:port": func(o *Options) { o.URL = "ftp://127.0.0.1:8000" },
		"batch":                 func(o *Options) { o.Batch = 0 },
		"sequence length":       func(o *Options) { o.SeqLen = 0 },
		"integers below":        func(o *Options) { o.MaxID = 0 },
		"0 inputs":              func(o *Options) { o.Inputs = 0 },
		"query timeout":         func(o *Options) { o.QueryTimeout = -1 },
		"priority":              func(o *Options) { o.Priority = -1 },
	} {
		o := valid()
		set(&o)
		_, err := o.resolve()
		if !errors.Is(err, errOptions) || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

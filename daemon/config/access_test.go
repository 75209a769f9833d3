package config

import (
	"strings"
	"testing"
)

// Nobody else reaches a daemon that was not told to let them.
func TestDefaultsListenOnLoopback(t *testing.T) {
	for name, c := range map[string]Config{"default": Default(), "embedded": Embedded()} {
		if !local(c.Listen) || c.GRPCListen != "" && !local(c.GRPCListen) || len(c.Exposures()) != 0 {
			t.Errorf("%s: %q, %q: %q", name, c.Listen, c.GRPCListen, c.Exposures())
		}
	}
}

func TestLocal(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1:1": true, "127.8.8.8:1": true, "[::1]:1": true, "localhost:1": true, "LOCALHOST:1": true, "unix:/a": true,
		"[::ffff:127.0.0.1]:1": true, ":1": false, "0.0.0.0:1": false, "[::]:1": false, "10.0.0.1:1": false, "localhost.example:1": false,
		"127.0.0.1.example:1": false, "nonsense": false,
	} {
		if got := local(address); got != want {
			t.Errorf("%s: %t", address, got)
		}
	}
}

func TestExposures(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		want   []string
	}{
		"open": {func(c *Config) { c.Listen = ":8000" }, []string{"set access.token_file", "set tls.cert"}},
		"both": {func(c *Config) { c.Listen, c.GRPCListen = ":8000", ":8001" }, []string{
			`listen = ":8000": anyone`, "set tls.cert", `grpc_listen = ":8001": anyone`, "set tls.cert"}},
		"a token in the clear": {func(c *Config) { c.Listen, c.Access.TokenFile = ":8000", "t" }, []string{"and their tokens can be read"}},
		"TLS for everybody":    {func(c *Config) { c.Listen, c.TLS.Cert = ":8000", "c" }, []string{"set access.token_file"}},
		"clients of ours":      {func(c *Config) { c.Listen, c.TLS.Cert, c.TLS.ClientCA = ":8000", "c", "a" }, nil},
		"TLS and a token":      {func(c *Config) { c.Listen, c.TLS.Cert, c.Access.TokenFile = ":8000", "c", "t" }, nil},
		"no gRPC":              {func(c *Config) { c.GRPCListen = "" }, nil},
	} {
		config := Default()
		c.change(&config)
		got := config.Exposures()
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", name, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: %q, want %q", name, got[i], c.want[i])
			}
		}
	}
}

func TestTLSConfigRefused(t *testing.T) {
	for text, want := range map[string]string{
		`cert = "a"`:            "tls.key: is missing",
		`key = "a"`:             "tls.cert: is missing",
		`client_ca = "a"`:       "needs tls.cert",
		"min_version = \"1.1\"": "must be one of 1.2, 1.3",
		"cert = \"a\"\nkey = \"b\"\nmin_version = 1": "must be a string",
	} {
		_, err := Parse("c.toml", []byte("[tls]\n"+text+"\n"+minimalConfig))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	c, err := Parse("/etc/o/c.toml", []byte("[tls]\ncert = \"a\"\nkey = \"/b\"\n[access]\ntoken_file = \"t\"\n"+minimalConfig))
	if err != nil || c.TLS.Cert != "/etc/o/a" || c.TLS.Key != "/b" || c.TLS.ClientCA != "" || c.Access.TokenFile != "/etc/o/t" {
		t.Errorf("%+v, %+v, %v", c.TLS, c.Access, err)
	}
}

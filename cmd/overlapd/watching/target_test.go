package watching

import (
	"testing"

	"github.com/overlapd/overlapd/daemon/config"
)

// An address to listen on becomes one to ask, with what the configuration has besides.
func TestFollowConfiguration(t *testing.T) {
	for listen, want := range map[string]string{
		"127.0.0.1:8000": "http://127.0.0.1:8000", ":9000": "http://127.0.0.1:9000", "0.0.0.0:1": "http://127.0.0.1:1",
		"[::]:8000": "http://[::1]:8000", "host.example:80": "http://host.example:80", "unix:/run/a.sock": "http://localhost",
	} {
		c := config.Default()
		c.Listen = listen
		var at target
		if err := at.follow(&c); err != nil || at.base != want || (at.client.Dial != nil) != (want == "http://localhost") {
			t.Errorf("%s: %s, %v, want %s", listen, at.base, err, want)
		}
	}
	c := config.Default()
	c.TLS.Cert, c.Access.TokenFile = "server.pem", "tokens"
	var at target
	at.credentials.CA = "ca.pem"
	if err := at.follow(&c); err != nil || at.base != "https://127.0.0.1:8000" || at.credentials.CA != "ca.pem" || at.credentials.TokenFile != "tokens" {
		t.Errorf("credentials %+v, got %v", at.credentials, err)
	}
}

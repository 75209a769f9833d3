package config

import (
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/overlapd/overlapd/daemon/access"
)

// TLS says how both endpoints are encrypted. They are not without a
// certificate.
type TLS struct {
	Cert       string // PEM file, the daemon's own certificate first
	Key        string // PEM file
	ClientCA   string // PEM file: authorities of the certificates that clients must have, "" if they need none
	MinVersion string // "1.2" or "1.3"
}

// Access says who may ask.
type Access struct {
	TokenFile string // tokens, one a line, one of which every request must carry, "" for none
	Metrics   bool   // /metrics needs one, too
}

func (t *TLS) keys(k keys) {
	k.text("cert", &t.Cert)
	k.text("key", &t.Key)
	k.text("client_ca", &t.ClientCA)
	k.text("min_version", &t.MinVersion)
}

func (a *Access) keys(k keys) {
	k.text("token_file", &a.TokenFile)
	k.flag("metrics", &a.Metrics)
}

func (t *TLS) check(k *checker) {
	k.choice("min_version", t.MinVersion, access.Versions)
	switch {
	case t.Cert == "" && t.Key != "":
		k.fault("cert", "is missing: tls.key names a key, and a key goes with a certificate")
	case t.Cert != "" && t.Key == "":
		k.fault("key", "is missing: tls.cert names a certificate, and a certificate goes with its key")
	}
	if t.Cert == "" && t.ClientCA != "" {
		k.fault("client_ca", "needs tls.cert and tls.key: clients show certificates only to a daemon that has one")
	}
}

// accessFiles are the paths that may be relative.
func (c *Config) accessFiles() []*string {
	return []*string{&c.TLS.Cert, &c.TLS.Key, &c.TLS.ClientCA, &c.Access.TokenFile}
}

// Exposures returns what is unsafe about the addresses: those that other
// machines may reach although anybody may ask there, or everybody on the way
// can read along.
func (c *Config) Exposures() (all []string) {
	for _, at := range []struct{ key, address string }{{"listen", c.Listen}, {"grpc_listen", c.GRPCListen}} {
		if at.address == "" || local(at.address) {
			continue
		}
		if c.Access.TokenFile == "" && c.TLS.ClientCA == "" {
			all = append(all, fmt.Sprintf("%s = %q: whoever reaches this address may ask: set access.token_file, or listen on 127.0.0.1",
				at.key, at.address))
		}
		if c.TLS.Cert == "" {
			all = append(all, fmt.Sprintf("%s = %q: requests%s can be read and changed on the way: set tls.cert and tls.key, or listen on 127.0.0.1",
				at.key, at.address, map[bool]string{true: " and their tokens"}[c.Access.TokenFile != ""]))
		}
	}
	return all
}

// local reports whether only this machine can reach an address.
func local(address string) bool {
	if strings.HasPrefix(address, UnixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || err != nil && strings.EqualFold(host, "localhost")
}

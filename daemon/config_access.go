package daemon

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/overlapd/overlapd/daemon/access"
)

// TLSConfig says how both endpoints are encrypted. They are not without a
// certificate.
type TLSConfig struct {
	Cert       string // PEM file, the daemon's own certificate first
	Key        string // PEM file
	ClientCA   string // PEM file: authorities of the certificates that clients must have, "" if they need none
	MinVersion string // "1.2" or "1.3"
}

// AccessConfig says who may ask.
type AccessConfig struct {
	TokenFile string // tokens, one a line, one of which every request must carry, "" for none
	Metrics   bool   // /metrics needs one, too
}

func (t *TLSConfig) keys(k keys) {
	k.text("cert", &t.Cert)
	k.text("key", &t.Key)
	k.text("client_ca", &t.ClientCA)
	k.text("min_version", &t.MinVersion)
}

func (a *AccessConfig) keys(k keys) {
	k.text("token_file", &a.TokenFile)
	k.flag("metrics", &a.Metrics)
}

func (t *TLSConfig) check(k *checker) {
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

func (c *Config) accessOptions(changed func(error)) access.Options {
	return access.Options{
		TokenFile: c.Access.TokenFile, Cert: c.TLS.Cert, Key: c.TLS.Key, ClientCA: c.TLS.ClientCA,
		MinVersion: c.TLS.MinVersion, Changed: changed,
	}
}

// CheckAccess reads the files that say who may ask. It returns what is unsafe
// about them and about the addresses, each with a remedy.
func (c *Config) CheckAccess() (warnings []string, err error) {
	a, err := access.Open(c.accessOptions(nil))
	if err != nil {
		return c.Exposures(), err
	}
	return slices.Concat(c.Exposures(), a.Warnings(), c.openFolders(-1)), nil // who asks need not be the daemon's user
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
	if strings.HasPrefix(address, unixPrefix) {
		return true
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || err != nil && strings.EqualFold(host, "localhost")
}

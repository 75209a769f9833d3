package access

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/fakes/fakeca"
)

// shake returns what client and server agree on.
func shake(t *testing.T, server, client *tls.Config) (state tls.ConnectionState, serverSays, clientSays error) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	done := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			defer nc.Close()
			_, err = tls.Server(nc, server).Write([]byte{1})
		}
		done <- err
	}()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
	c := client.Clone()
	c.ServerName = "localhost"
	conn := tls.Client(nc, c)
	_, clientSays = conn.Read(make([]byte, 1)) // a refused certificate is told after the handshake
	state = conn.ConnectionState()
	nc.Close()
	return state, <-done, clientSays
}

func TestTLS(t *testing.T) {
	ca, foreign := fakeca.New(t.TempDir()), fakeca.New(t.TempDir())
	cert, key := ca.Pair("server", time.Hour)
	at := func(c *tls.Config, most uint16) *tls.Config {
		c.MaxVersion, c.NextProtos = most, []string{"h2"}
		return c
	}
	for name, c := range map[string]struct {
		least, clientCA string
		client          *tls.Config
		want            uint16 // version, 0 for none
	}{
		"1.3 by default":         {"", "", at(ca.Client(""), tls.VersionTLS13), tls.VersionTLS13},
		"not less":               {"1.3", "", at(ca.Client(""), tls.VersionTLS12), 0},
		"less if asked for":      {"1.2", "", at(ca.Client(""), tls.VersionTLS12), tls.VersionTLS12},
		"never 1.1":              {"1.2", "", at(&tls.Config{RootCAs: ca.Pool(), MinVersion: tls.VersionTLS10}, tls.VersionTLS11), 0},
		"a foreign authority":    {"1.3", "", at(foreign.Client(""), tls.VersionTLS13), 0},
		"client without any":     {"1.3", ca.File(), at(ca.Client(""), tls.VersionTLS13), 0},
		"client of ours":         {"1.3", ca.File(), at(ca.Client("client"), tls.VersionTLS13), tls.VersionTLS13},
		"client of ours, 1.2":    {"1.2", ca.File(), at(ca.Client("client"), tls.VersionTLS12), tls.VersionTLS12},
		"client of somebody":     {"1.3", foreign.File(), at(ca.Client("client"), tls.VersionTLS13), 0},
		"certificate not needed": {"1.3", "", at(ca.Client("client"), tls.VersionTLS13), tls.VersionTLS13},
	} {
		a := opened(t, Options{Cert: cert, Key: key, CA: c.clientCA, MinVersion: c.least})
		state, _, client := shake(t, a.TLS("h2"), c.client)
		if ok := client == nil; ok != (c.want != 0) || ok && (state.Version != c.want || state.NegotiatedProtocol != "h2") {
			t.Errorf("%s: %v, version %#x", name, client, state.Version)
		}
		if a.Guarded() || !a.Allows(nil) {
			t.Errorf("%s: a token is wanted", name)
		}
	}
}

// A session that began under an authority that is gone is not gone on with.
func TestClientsAreNotResumed(t *testing.T) {
	ca, other := fakeca.New(t.TempDir()), fakeca.New(t.TempDir())
	cert, key := ca.Pair("server", time.Hour)
	clients := filepath.Join(t.TempDir(), "clients.pem")
	write(t, clients, text(t, ca.File()), 0o600)
	a := opened(t, Options{Cert: cert, Key: key, CA: clients})
	client, config := ca.Client("client"), a.TLS()
	client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	if _, s, c := shake(t, config, client); s != nil || c != nil {
		t.Fatal(s, c)
	}
	write(t, clients, text(t, other.File()), 0o600)
	if err := a.Reload(); err != nil {
		t.Fatal(err)
	}
	if state, s, c := shake(t, config, client); c == nil || state.DidResume {
		t.Errorf("server %v, client %v, resumed %t", s, c, state.DidResume)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A new pair is taken into use once it is whole, by connections that are made
// then; what is listened with stays.
func TestCertificatesFollowed(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	oldCert, oldKey := ca.Pair("old", time.Hour)
	newCert, newKey := ca.Pair("new", time.Hour)
	write(t, cert, text(t, oldCert), 0o600)
	write(t, key, text(t, oldKey), 0o600)
	var told []error
	a := opened(t, Options{Cert: cert, Key: key, Changed: func(err error) { told = append(told, err) }})
	config := a.TLS("h2")
	serves := func() string {
		a.certificates.due()
		if state, s, c := shake(t, config, ca.Client("")); s != nil || c != nil {
			t.Fatal(s, c)
		} else {
			return state.PeerCertificates[0].Subject.CommonName
		}
		return ""
	}
	for _, step := range []struct {
		path, text, want string
		told             int
	}{
		{cert, text(t, newCert), "old", 1}, // beside the old key
		{key, text(t, newKey), "new", 2},
		{key, "nonsense", "new", 3},
		{key, text(t, newKey), "new", 4},
	} {
		write(t, step.path, step.text, 0o600)
		if got := serves(); got != step.want || len(told) != step.told || (told[len(told)-1] != nil) != (step.told%2 == 1) {
			t.Errorf("%s serves, told %v; want %s", got, told, step.want)
		}
	}
	write(t, cert, text(t, oldCert), 0o600)
	if err := a.Reload(); !errors.Is(err, ErrCertificates) || !strings.Contains(err.Error(), cert) {
		t.Errorf("reload of half a pair: %v", err)
	}
	if got := serves(); got != "new" {
		t.Errorf("%s serves", got)
	}
}

func TestCertificatesRefused(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	cert, key := ca.Pair("server", time.Hour)
	other, _ := ca.Pair("other", time.Hour)
	empty := filepath.Join(t.TempDir(), "empty")
	write(t, empty, "", 0o600)
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"no certificate":   {Options{Cert: empty, Key: key}, empty},
		"missing":          {Options{Cert: cert, Key: key + "none"}, "no such file"},
		"another's":        {Options{Cert: other, Key: key}, "private key does not match"},
		"swapped":          {Options{Cert: key, Key: cert}, "tls.cert"},
		"no authority":     {Options{Cert: cert, Key: key, CA: empty}, "tls.client_ca"},
		"a key, not one":   {Options{Cert: cert, Key: key, CA: key}, "no certificate in PEM form"},
		"not a file":       {Options{Cert: os.DevNull, Key: key}, "not a regular file"},
		"missing for them": {Options{Cert: cert, Key: key, CA: empty + "none"}, "no such file"},
	} {
		_, err := Open(c.o)
		if !errors.Is(err, ErrCertificates) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && strings.Contains(err.Error(), strings.Split(text(t, key), "\n")[1]) {
			t.Errorf("%s: the error tells the key", name)
		}
	}
}

func TestCertificateWarnings(t *testing.T) {
	ca := fakeca.New(t.TempDir())
	for name, c := range map[string]struct {
		lasts time.Duration
		mode  os.FileMode
		want  []string
	}{
		"fine":     {365 * 24 * time.Hour, 0o640, nil},
		"open key": {365 * 24 * time.Hour, 0o644, []string{"chmod o="}},
		"soon":     {24 * time.Hour, 0o600, []string{"replace certificate and key"}},
		"over":     {-time.Hour, 0o602, []string{"chmod o=", "replace certificate and key"}},
	} {
		cert, key := ca.Pair("server", c.lasts)
		if err := os.Chmod(key, c.mode); err != nil {
			t.Fatal(err)
		}
		a := opened(t, Options{Cert: cert, Key: key})
		got := a.Warnings()
		if len(got) != len(c.want) {
			t.Errorf("%s: %q", name, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], c.want[i]) {
				t.Errorf("%s: %q", name, got[i])
			}
		}
	}
}

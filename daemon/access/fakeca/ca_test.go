package fakeca

import (
	"crypto/tls"
	"crypto/x509"
	"testing"
	"time"
)

// A pair is of the authority, for loopback, and lasts as long as it should.
func TestPair(t *testing.T) {
	ca := New(t.TempDir())
	pair, err := tls.LoadX509KeyPair(ca.Pair("server", time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		host string
		at   time.Duration
		ok   bool
	}{
		"by address": {"127.0.0.1", 0, true}, "by name": {"localhost", 0, true}, "another": {"example.com", 0, false}, "later": {"localhost", 2 * time.Minute, false},
	} {
		_, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: ca.Pool(), DNSName: c.host, CurrentTime: time.Now().Add(c.at)})
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: New(t.TempDir()).Pool()}); err == nil {
		t.Error("another authority vouches for it")
	}
	if c := ca.Client("me"); len(c.Certificates) != 1 || ca.Client("").Certificates != nil || c.RootCAs == nil {
		t.Error("a client with a name has a certificate, and one without has none")
	}
}

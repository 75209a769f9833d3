package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"
)

// maxPEMBytes bounds each file of a certificate, its key or authorities.
const maxPEMBytes = 1 << 20

// endsSoon is how long before its end a certificate is warned of.
const endsSoon = 14 * 24 * time.Hour

// Versions are the versions of TLS that can be asked for as the least.
var Versions = []string{"1.2", "1.3"}

var versions = map[string]uint16{"1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}

// certificates are what TLS needs. A pair is taken into use whole: while a new
// certificate lies beside the key of the old one, the old pair serves.
type certificates struct {
	cert, key, clients string
	least              uint16
	files              files
	now                atomic.Pointer[tls.Config]
}

func newCertificates(o Options) *certificates {
	c := &certificates{cert: o.Cert, key: o.Key, clients: o.ClientCA, least: versions[o.MinVersion]}
	if c.least == 0 {
		c.least = tls.VersionTLS13
	}
	paths := []string{c.cert, c.key}
	if c.clients != "" {
		paths = append(paths, c.clients)
	}
	c.files = files{paths: paths, take: c.take, changed: o.Changed}
	return c
}

// take reads the files.
func (c *certificates) take() error {
	var pem [2][]byte
	for i, path := range []string{c.cert, c.key} {
		var err error
		if pem[i], err = read(path, maxPEMBytes); err != nil {
			return fmt.Errorf("%w: %w", ErrCertificates, err)
		}
	}
	pair, err := tls.X509KeyPair(pem[0], pem[1])
	if err != nil {
		return fmt.Errorf("%w: tls.cert %s with tls.key %s: %w", ErrCertificates, c.cert, c.key, err)
	}
	now := &tls.Config{MinVersion: c.least, Certificates: []tls.Certificate{pair}}
	if c.clients != "" {
		if err := c.takeClients(now); err != nil {
			return err
		}
	}
	c.now.Store(now)
	return nil
}

// takeClients reads the authorities of clients. Sessions are not resumed then:
// one that was begun under an authority that is gone would go on.
func (c *certificates) takeClients(now *tls.Config) error {
	text, err := read(c.clients, maxPEMBytes)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCertificates, err)
	}
	now.ClientCAs = x509.NewCertPool()
	if !now.ClientCAs.AppendCertsFromPEM(text) {
		return fmt.Errorf("%w: tls.client_ca %s holds no certificate in PEM form", ErrCertificates, c.clients)
	}
	now.ClientAuth, now.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, true
	return nil
}

// config returns how connections are encrypted, for as long as there are any:
// each handshake takes what is in use then.
func (c *certificates) config(protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: c.least,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			c.files.look()
			now := c.now.Load().Clone()
			now.NextProtos = protocols
			return now, nil
		},
	}
}

// ending warns of a certificate that clients refuse now or soon.
func (c *certificates) ending() []string {
	leaf := c.now.Load().Certificates[0].Leaf
	if leaf == nil || time.Until(leaf.NotAfter) > endsSoon {
		return nil
	}
	return []string{fmt.Sprintf("the certificate %s ends on %s: put a new pair in its place, which is taken into use without a restart",
		c.cert, leaf.NotAfter.UTC().Format(time.DateTime))}
}

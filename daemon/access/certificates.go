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

// certificates are what TLS needs. A pair is taken into use whole: while a new
// certificate lies beside the key of the old one, the old pair serves.
type certificates struct {
	cert, key, clients string
	least              uint16
	files              files
	now                atomic.Pointer[tls.Config]
}

func newCertificates(o Options) *certificates {
	c := &certificates{cert: o.Cert, key: o.Key, clients: o.CA, least: tls.VersionTLS13}
	if o.MinVersion == "1.2" {
		c.least = tls.VersionTLS12
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
		if now.ClientCAs, err = readAuthorities(c.clients); err != nil {
			return fmt.Errorf("tls.client_ca: %w", err)
		}
		// A session that was begun under an authority that is gone would go on.
		now.ClientAuth, now.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, true
	}
	c.now.Store(now)
	return nil
}

// readAuthorities reads a file of certificates of authorities.
func readAuthorities(path string) (*x509.CertPool, error) {
	text, err := read(path, maxPEMBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCertificates, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%w: %s holds no certificate in PEM form", ErrCertificates, path)
	}
	return pool, nil
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

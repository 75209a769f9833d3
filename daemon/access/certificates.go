package access

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"

	"github.com/overlapd/overlapd/internal/textfile"
)

// maxPEMBytes is the size limit of a certificate, key or CA file.
const maxPEMBytes = 1 << 20

// endsSoon is how long before its expiry a certificate causes a warning.
const endsSoon = 14 * 24 * time.Hour

// version returns the minimum TLS version.
func (o *Options) version() uint16 {
	if o.MinVersion == "1.2" {
		return tls.VersionTLS12
	}
	return tls.VersionTLS13
}

// pair reads the server certificate, its key and the client CAs. They take effect together:
// while only one of certificate and key has been replaced, the pair does not match and the
// previous one stays in use.
func (o *Options) pair() (*tls.Config, error) {
	pair, err := o.keyPair()
	if err != nil {
		return nil, fmt.Errorf("%w: tls.cert %s with tls.key %s: %w", ErrCertificates, o.Cert, o.Key, err)
	}
	c := &tls.Config{MinVersion: o.version(), Certificates: []tls.Certificate{pair}}
	if o.CA != "" {
		if c.ClientCAs, err = readAuthorities(o.CA); err != nil {
			return nil, fmt.Errorf("tls.client_ca: %w", err)
		}
		// A resumed session would outlive the removal of the CA that it was verified with.
		c.ClientAuth, c.SessionTicketsDisabled = tls.RequireAndVerifyClientCert, true
	}
	return c, nil
}

// keyPair reads a certificate and its key.
func (o *Options) keyPair() (tls.Certificate, error) {
	cert, err := textfile.ReadRegular(o.Cert, maxPEMBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := textfile.ReadRegular(o.Key, maxPEMBytes)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

// readAuthorities reads a file of CA certificates.
func readAuthorities(path string) (*x509.CertPool, error) {
	text, err := textfile.ReadRegular(path, maxPEMBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCertificates, err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%w: %s contains no certificate in PEM format", ErrCertificates, path)
	}
	return pool, nil
}

// ending warns about a certificate that has expired or will soon.
func ending(path string, c *tls.Config) []string {
	leaf := c.Certificates[0].Leaf
	if leaf == nil || time.Until(leaf.NotAfter) > endsSoon {
		return nil
	}
	return []string{fmt.Sprintf("the certificate %s expires on %s: replace certificate and key, which are used without a restart",
		path, leaf.NotAfter.UTC().Format(time.DateTime))}
}

// ReadCredentials reads the credentials of a client: an Authorization header with the first
// token of the file ("" without one), and a TLS configuration that trusts the CAs of the
// file, or those of the system. It accepts servers that only speak TLS 1.2, such as a
// collector of traces.
func ReadCredentials(o Options) (authorization string, c *tls.Config, err error) {
	c = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TokenFile != "" {
		tokens, err := readTokens(o.TokenFile)
		if err != nil {
			return "", nil, err
		}
		authorization = "Bearer " + string(tokens[0])
	}
	if o.CA != "" {
		if c.RootCAs, err = readAuthorities(o.CA); err != nil {
			return "", nil, err
		}
	}
	if o.Cert != "" || o.Key != "" {
		pair, err := o.keyPair()
		if err != nil {
			return "", nil, fmt.Errorf("%w: the certificate %q with the key %q: %w", ErrCertificates, o.Cert, o.Key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return authorization, c, nil
}

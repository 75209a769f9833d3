package access

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
)

// Credentials are what a client brings.
type Credentials struct {
	Token string      // "" for none
	TLS   *tls.Config // of connections to https://
}

// ClientOptions says where credentials are. Empty paths are for none.
type ClientOptions struct {
	TokenFile string // its first token is used
	CA        string // PEM, authorities of the daemon's certificate; "" for those of the system
	Cert, Key string // PEM, of the client's own certificate
}

// ReadCredentials reads what a client brings.
func ReadCredentials(o ClientOptions) (c Credentials, err error) {
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TokenFile != "" {
		if c.Token, err = firstToken(o.TokenFile); err != nil {
			return c, err
		}
	}
	if o.CA != "" {
		text, err := read(o.CA, maxPEMBytes)
		if err != nil {
			return c, fmt.Errorf("%w: %w", ErrCertificates, err)
		}
		c.TLS.RootCAs = x509.NewCertPool()
		if !c.TLS.RootCAs.AppendCertsFromPEM(text) {
			return c, fmt.Errorf("%w: %s holds no certificate in PEM form", ErrCertificates, o.CA)
		}
	}
	if o.Cert == "" && o.Key == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return c, fmt.Errorf("%w: the certificate %q with the key %q: %w", ErrCertificates, o.Cert, o.Key, err)
	}
	c.TLS.Certificates = []tls.Certificate{pair}
	return c, nil
}

// firstToken returns the first token of a file.
func firstToken(path string) (string, error) {
	text, err := read(path, maxTokenFileBytes)
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrTokens, err)
	}
	if _, err := parseTokens(text); err != nil {
		return "", fmt.Errorf("%w: %s: %w", ErrTokens, path, err)
	}
	for line := range bytes.Lines(text) {
		if token := bytes.TrimSpace(line); len(token) > 0 && token[0] != '#' {
			return string(token), nil
		}
	}
	return "", fmt.Errorf("%w: %s has no token", ErrTokens, path)
}

// Header returns the Authorization header that carries the token, "" for none.
func (c Credentials) Header() string {
	if c.Token == "" {
		return ""
	}
	return "Bearer " + c.Token
}

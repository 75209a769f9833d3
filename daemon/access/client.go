package access

import (
	"crypto/tls"
	"fmt"
)

// Credentials are what a client brings: a token, or "" for none, and how it speaks
// to https:// addresses.
type Credentials struct {
	Token string
	TLS   *tls.Config
}

// ReadCredentials reads what a client brings: the first token of the file, and
// TLS that trusts the authorities, those of the system if there are none.
func ReadCredentials(o Options) (c Credentials, err error) {
	c.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	if o.TokenFile != "" {
		tokens, err := readTokens(o.TokenFile)
		if err != nil {
			return c, err
		}
		c.Token = string(tokens[0])
	}
	if o.CA != "" {
		if c.TLS.RootCAs, err = readAuthorities(o.CA); err != nil {
			return c, err
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

// Header returns the Authorization header that carries the token, "" for none.
func (c Credentials) Header() string {
	if c.Token == "" {
		return ""
	}
	return "Bearer " + c.Token
}

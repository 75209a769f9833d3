package access

import (
	"crypto/tls"
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

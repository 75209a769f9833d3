// Package access controls who may use the daemon and over which transport. An [Access]
// holds the bearer tokens that requests must carry and the TLS certificates. [Listen] opens
// the daemon's addresses, [Inherit] takes over listening sockets from systemd, and
// [ReadCredentials] reads the credentials that commands send.
//
// Tokens and certificates come from files that are followed: a changed file takes effect
// with the first request or handshake at least a second after the previous check, or by
// [Access.Reload]. If a changed file is invalid, the previous contents stay in use.
//
// Tokens are kept as hashes and compared in constant time. No error, warning or message of
// this package contains a token or a key.
package access

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
)

// Access decides about requests and connections. A nil Access lets everybody in, without
// TLS. Its methods may be called from many goroutines at once.
type Access struct {
	options Options

	// tokens is nil if no token is needed.
	tokens *files[[][sha256.Size]byte]

	// certificates is nil without TLS.
	certificates *files[tls.Config]
}

// Open reads the files. It returns nil if the options name none, and an error that wraps
// ErrTokens or ErrCertificates if a file is invalid.
func Open(o Options) (*Access, error) {
	if o.TokenFile == "" && o.Cert == "" {
		return nil, nil
	}
	a := &Access{options: o}
	if o.TokenFile != "" {
		a.tokens = &files[[][sha256.Size]byte]{paths: []string{o.TokenFile}, read: o.hashes, changed: o.Changed}
	}
	if o.Cert != "" {
		a.certificates = &files[tls.Config]{paths: []string{o.Cert, o.Key, o.CA}, read: o.pair, changed: o.Changed}
	}
	if err := a.Reload(); err != nil {
		return nil, err
	}
	return a, nil
}

// Reload reads all files again, whether or not they have changed. An invalid file leaves
// its previous contents in use; the error names each.
func (a *Access) Reload() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.tokens.reload(), a.certificates.reload())
}

// Allows reports whether a request with this Authorization header (empty for none) may be
// answered. It takes the same time for every token.
func (a *Access) Allows(authorization []byte) bool {
	return !a.Guarded() || allows(*a.tokens.inUse(), authorization)
}

// Guarded reports whether requests need a token.
func (a *Access) Guarded() bool { return a != nil && a.tokens != nil }

// TLS returns the TLS configuration for connections that offer the given ALPN protocols, or
// nil without TLS. The configuration stays valid: each handshake uses the certificates that
// are in use at that time.
func (a *Access) TLS(protocols ...string) *tls.Config {
	if a == nil || a.certificates == nil {
		return nil
	}
	return &tls.Config{
		MinVersion: a.options.version(),
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			now := a.certificates.inUse().Clone()
			now.NextProtos = protocols
			return now, nil
		},
	}
}

// Warnings returns problems that do not prevent operation, each with a remedy: secrets that
// other users can read, and a certificate that expires soon.
func (a *Access) Warnings() (all []string) {
	if a == nil {
		return nil
	}
	all = append(tooOpen(a.options.TokenFile), tooOpen(a.options.Key)...)
	if a.certificates != nil {
		all = append(all, ending(a.options.Cert, a.certificates.inUse())...)
	}
	return all
}

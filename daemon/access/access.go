// Package access decides who may ask the daemon, and over what: an [Access] holds
// the bearer tokens that requests must carry, and the certificates of TLS. Both
// come from files that are followed: a changed file is taken into use within a
// second of the next request or handshake, or by [Access.Reload], and one that
// is wrong leaves what was there before.
//
// Tokens are kept as hashes and compared in constant time. No error, warning or
// message of this package holds a token or a key. The daemon asks it for each request
// and connection, and opens its addresses by [Listen]; commands read their own
// credentials by [ReadCredentials].
package access

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
)

// Access is who may ask. A nil Access lets everybody in, without TLS. Its
// methods may be called from many goroutines at once.
type Access struct {
	options      Options
	tokens       *files[[][sha256.Size]byte] // nil for none
	certificates *files[tls.Config]          // nil for none
}

// Open reads the files. It returns nil if the options ask for nothing, and an
// error that wraps ErrTokens or ErrCertificates if a file cannot be used.
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

// Reload reads all files again. A file that cannot be used leaves what it held
// before in use; the error names each.
func (a *Access) Reload() error {
	if a == nil {
		return nil
	}
	return errors.Join(a.tokens.reload(), a.certificates.reload())
}

// Allows reports whether a request may be answered that has this Authorization
// header, which is empty for none. It takes the same time for every token.
func (a *Access) Allows(authorization []byte) bool {
	return !a.Guarded() || allows(*a.tokens.inUse(), authorization)
}

// Guarded reports whether requests need a token.
func (a *Access) Guarded() bool { return a != nil && a.tokens != nil }

// TLS returns how connections are encrypted that speak one of the protocols, for
// as long as there are any, or nil if they are not: each handshake takes what is
// in use then.
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

// Warnings returns what should be mended though it does not hinder: files that
// others can read, a certificate that has ended. Each names a remedy.
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

package access

import (
	"crypto/tls"
	"errors"
)

// Access is who may ask. A nil Access lets everybody in, without TLS. Its
// methods may be called from many goroutines at once.
type Access struct {
	tokens       *tokens       // nil for none
	certificates *certificates // nil for none
}

// Open reads the files. It returns nil if the options ask for nothing, and an
// error that wraps ErrTokens or ErrCertificates if a file cannot be used.
func Open(o Options) (*Access, error) {
	if o.TokenFile == "" && o.Cert == "" {
		return nil, nil
	}
	a := &Access{}
	if o.TokenFile != "" {
		a.tokens = newTokens(o.TokenFile, o.Changed)
	}
	if o.Cert != "" {
		a.certificates = newCertificates(o)
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
	var errs []error
	if a.tokens != nil {
		errs = append(errs, a.tokens.files.reload())
	}
	if a.certificates != nil {
		errs = append(errs, a.certificates.files.reload())
	}
	return errors.Join(errs...)
}

// Allows reports whether a request may be answered that has this Authorization
// header, which is empty for none. It takes the same time for every token.
func (a *Access) Allows(authorization []byte) bool {
	return a == nil || a.tokens == nil || a.tokens.allow(authorization)
}

// Guarded reports whether requests need a token.
func (a *Access) Guarded() bool { return a != nil && a.tokens != nil }

// TLS returns how connections are encrypted that speak one of the protocols, or
// nil if they are not.
func (a *Access) TLS(protocols ...string) *tls.Config {
	if a == nil || a.certificates == nil {
		return nil
	}
	return a.certificates.config(protocols)
}

// Warnings returns what should be mended though it does not hinder: files that
// others can read, a certificate that has ended. Each names a remedy.
func (a *Access) Warnings() (all []string) {
	if a == nil {
		return nil
	}
	if a.tokens != nil {
		all = append(all, tooOpen(a.tokens.path)...)
	}
	if a.certificates != nil {
		all = append(all, tooOpen(a.certificates.key)...)
		all = append(all, a.certificates.ending()...)
	}
	return all
}

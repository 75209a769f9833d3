package access

import "errors"

var (
	// ErrTokens is returned when a file of tokens cannot be used. The error
	// says why, and names lines, never what stands on them.
	ErrTokens = errors.New("access: tokens")

	// ErrCertificates is returned when a certificate, its key, or the
	// authorities of clients cannot be used.
	ErrCertificates = errors.New("access: certificates")
)

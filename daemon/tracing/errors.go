package tracing

import "errors"

// Errors of [New].
var (
	// ErrEndpoint is returned when the address of the collector cannot be used.
	ErrEndpoint = errors.New("the endpoint of a collector is http:// or https://, a host, and a path if it is not /v1/traces")

	// ErrHeaders is returned when a file of headers is none.
	ErrHeaders = errors.New("a file of headers has lines of the form name: value")

	// ErrTLS is returned when certificates or keys cannot be used.
	ErrTLS = errors.New("TLS to the collector is not possible")
)

package tracing

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// ErrEndpoint is returned when the address of the collector cannot be used.
var ErrEndpoint = errors.New("the endpoint of a collector is http:// or https://, a host, and a path if it is not /v1/traces")

// tracesPath is where a collector takes spans, unless its address has a path.
const tracesPath = "/v1/traces"

// FromEnvironment reports whether the environment names a collector, with the
// variables that OpenTelemetry defines.
func FromEnvironment() bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != ""
}

// CheckEndpoint returns the address that spans are sent to.
func CheckEndpoint(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" ||
		u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%w, not %q", ErrEndpoint, text)
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = tracesPath
	}
	return u.String(), nil
}

package otlp

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Limits of a file of headers.
const (
	maxHeaderBytes = 64 << 10
	maxHeaders     = 64
)

// Errors of [New].
var (
	// ErrHeaders is returned when a file of headers is none.
	ErrHeaders = errors.New("a file of headers has lines of the form name: value")

	// ErrTLS is returned when certificates or keys cannot be used.
	ErrTLS = errors.New("TLS to the collector is not possible")
)

// Options says what is traced, and where to.
type Options struct {
	Endpoint    string  // URL of the collector, "" for that of the environment
	Sample      float64 // share of the queries without a traceparent that are traced, 0 to 1
	HeadersFile string  // lines "name: value", sent with every export; "" for none
	CAFile      string  // certificates that the collector's may be signed by, "" for the system's
	CertFile    string  // of this client, "" for none
	KeyFile     string  // of CertFile

	Service  string // service.name
	Instance string // service.instance.id
	Version  string // service.version

	// Report is told, at most once a minute, what was lost lately and why. It is
	// called from a goroutine of the tracer's.
	Report func(Loss)
}

// readHeaders reads a file of headers. Empty lines and those that begin with #
// are left out.
func readHeaders(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeaders, err)
	}
	defer f.Close()
	headers, err := parseHeaders(io.LimitReader(f, maxHeaderBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return headers, nil
}

func parseHeaders(r io.Reader) (map[string]string, error) {
	headers, bytes := map[string]string{}, 0
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		bytes += len(lines.Bytes()) + 1
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || !isToken(name) || !isValue(value) {
			return nil, fmt.Errorf("%w: line %d is not", ErrHeaders, n) // it may hold a secret: it is not told
		}
		headers[name] = value
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrHeaders, err)
	}
	if bytes > maxHeaderBytes || len(headers) > maxHeaders {
		return nil, fmt.Errorf("%w: at most %d of them and %d bytes", ErrHeaders, maxHeaders, maxHeaderBytes)
	}
	return headers, nil
}

// isToken reports whether a name is one that HTTP allows.
func isToken(s string) bool {
	const others = "!#$%&'*+-.^_`|~"
	for _, c := range []byte(s) {
		letter := c|0x20 >= 'a' && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && strings.IndexByte(others, c) < 0 {
			return false
		}
	}
	return s != ""
}

// isValue reports whether a value has no control characters.
func isValue(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f })
}

// tls returns what the files say of TLS, or nil if there are none.
func (o *Options) tls() (*tls.Config, error) {
	if o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		text, err := os.ReadFile(o.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTLS, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%w: %s holds no certificate in PEM form", ErrTLS, o.CAFile)
		}
	}
	if o.CertFile != "" || o.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(o.CertFile, o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrTLS, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// Package otlp sends OpenTelemetry spans of queries to a collector. A [Tracer]
// decides whether a query is traced, and takes in a [tracing.Query], which is what
// was recorded of it, once it is answered; from that a goroutine of its own makes
// the spans, which go out by OTLP over HTTP.
//
// Whoever answers queries never waits: what the collector does not take in time
// is left out, a whole query at once, and counted. A nil Tracer traces nothing.
package otlp

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
)

// Tracer traces queries. Its methods may be called from many goroutines.
type Tracer struct {
	sample   float64
	queries  sync.Pool // pools *tracing.Query
	ended    chan *tracing.Query
	provider *sdktrace.TracerProvider
	spans    spans
	exporter *exporter
	done     chan struct{} // closed when the goroutine has ended
	closing  atomic.Bool
	stop     chan struct{}

	traced, dropped atomic.Uint64
}

// counts is what became of queries and spans since the tracer was made.
type counts struct {
	Queries  uint64 // all that were traced
	Dropped  uint64 // those left out because the collector is slow
	Exported uint64 // spans that the collector has
	Failed   uint64 // spans that it did not take
}

// New returns a tracer, or what is wrong with the options. It does not look for
// the collector: one that comes later is as good.
func New(o Options) (*Tracer, error) {
	client, err := o.client()
	if err != nil {
		return nil, err
	}
	to, err := otlptrace.New(context.Background(), client)
	if err != nil {
		return nil, fmt.Errorf("tracing: %w", err)
	}
	t := &Tracer{
		sample: o.Sample, ended: make(chan *tracing.Query, maxWaiting),
		exporter: newExporter(to, o.Report), done: make(chan struct{}), stop: make(chan struct{}),
	}
	t.queries.New = func() any { return new(tracing.Query) }
	t.exporter.dropped = &t.dropped
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.exporter.report)) // or the library writes to stderr
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // Begin has decided
		sdktrace.WithResource(o.resource()),
		sdktrace.WithBatcher(t.exporter,
			sdktrace.WithBlocking(), // the goroutine, not who answers queries
			sdktrace.WithMaxQueueSize(maxSpans), sdktrace.WithMaxExportBatchSize(maxBatch),
			sdktrace.WithBatchTimeout(batchTime), sdktrace.WithExportTimeout(exportTime)),
	)
	t.spans.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	go t.run()
	return t, nil
}

// Begin returns where to note what becomes of a query, or nil if it is not
// traced.
func (t *Tracer) Begin(p tracing.Parent) *tracing.Query {
	if t == nil {
		return nil
	}
	parent := parentOf(&p)
	if !sampled(parent, t.sample) {
		return nil
	}
	t.traced.Add(1)
	q := t.queries.Get().(*tracing.Query)
	q.Parent = p
	return q
}

// Finish takes in a query that is over. It does not wait.
func (t *Tracer) Finish(q *tracing.Query) {
	if !t.closing.Load() {
		select {
		case t.ended <- q:
			return
		default:
		}
	}
	t.dropped.Add(1)
	t.exporter.lost(errBehind)
	t.free(q)
}

var errBehind = errors.New("the collector takes less than is traced: trace a smaller share of the queries (tracing.sample)")

func (t *Tracer) free(q *tracing.Query) {
	q.Forget()
	t.queries.Put(q)
}

// Counts returns the counts so far. Of a nil Tracer they are 0.
func (t *Tracer) Counts() counts {
	if t == nil {
		return counts{}
	}
	return counts{
		Queries: t.traced.Load(), Dropped: t.dropped.Load(),
		Exported: t.exporter.exported.Load(), Failed: t.exporter.failed.Load(),
	}
}

// run makes spans of queries until the tracer is closed and nothing waits.
func (t *Tracer) run() {
	defer close(t.done)
	for {
		select {
		case q := <-t.ended:
			t.spans.emit(q)
			t.free(q)
			continue
		default:
		}
		select {
		case q := <-t.ended:
			t.spans.emit(q)
			t.free(q)
		case <-t.stop:
			if len(t.ended) == 0 {
				return
			}
		}
	}
}

// Close sends what waits, for as long as ctx lasts, and ends the tracer. It is
// called once. Queries that end later are left out.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.closing.Store(true)
	close(t.stop)
	end := context.AfterFunc(ctx, t.exporter.giveUp)
	defer end()
	<-t.done // it waits for sending, which giveUp ends
	err := t.provider.Shutdown(context.Background())
	t.exporter.giveUp()
	return errors.Join(err, t.exporter.why(ctx))
}

// sampled reports whether a query is traced: as its parent is, if it has one.
func sampled(parent trace.SpanContext, ratio float64) bool {
	if parent.IsValid() {
		return parent.IsSampled()
	}
	return ratio > 0 && rand.Float64() < ratio
}

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

// Options are what is traced, and where to.
type Options struct {
	Endpoint    string  // URL of the collector, "" for that of the environment
	Sample      float64 // share of the queries without a traceparent that are traced, 0 to 1
	HeadersFile string  // lines "name: value", sent with every export; "" for none
	CAFile      string  // certificates that the collector's may be signed by, "" for the system's
	CertFile    string  // this client's certificate, "" for none
	KeyFile     string  // the key of CertFile

	Service  string // service.name
	Instance string // service.instance.id
	Version  string // service.version

	// Report is called, at most once a minute and from a goroutine of the tracer's,
	// with how many queries were left out and spans could not be sent since the last
	// call, and why the last one was.
	Report func(queries, spans uint64, why error)
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

// client returns what speaks to the collector. What the options leave open, the
// environment may say.
func (o *Options) client() (otlptrace.Client, error) {
	with := []otlptracehttp.Option{
		otlptracehttp.WithRetry(otlptracehttp.RetryConfig{Enabled: true, InitialInterval: retryFirst, MaxInterval: exportTime / 2, MaxElapsedTime: exportTime}),
	}
	if o.Endpoint != "" {
		at, err := tracing.CheckEndpoint(o.Endpoint)
		if err != nil {
			return nil, err
		}
		with = append(with, otlptracehttp.WithEndpointURL(at))
	}
	if o.HeadersFile != "" {
		headers, err := readHeaders(o.HeadersFile)
		if err != nil {
			return nil, err
		}
		with = append(with, otlptracehttp.WithHeaders(headers))
	}
	switch c, err := o.tls(); {
	case err != nil:
		return nil, err
	case c != nil:
		with = append(with, otlptracehttp.WithTLSClientConfig(c))
	}
	return otlptracehttp.NewClient(with...), nil
}

// resource is whose spans they are. OTEL_RESOURCE_ATTRIBUTES may say more, and
// OTEL_SERVICE_NAME another name.
func (o *Options) resource() *resource.Resource {
	r := resource.NewWithAttributes(semconv.SchemaURL,
		semconv.ServiceName(o.Service), semconv.ServiceInstanceID(o.Instance), semconv.ServiceVersion(o.Version))
	env, err := resource.New(context.Background(), resource.WithFromEnv())
	if err != nil {
		return r
	}
	kept := env.Attributes()[:0:0]
	for _, kv := range env.Attributes() {
		if o.Service == defaultService || kv.Key != semconv.ServiceNameKey {
			kept = append(kept, kv)
		}
	}
	if both, err := resource.Merge(r, resource.NewSchemaless(kept...)); err == nil {
		return both
	}
	return r
}

// defaultService is service.name where nobody gives another.
const defaultService = "overlapd"

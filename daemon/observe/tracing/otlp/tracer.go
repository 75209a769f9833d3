// Package otlp sends OpenTelemetry spans of queries to a collector. A [Tracer]
// decides whether a query is traced, and takes in a [tracing.Query], which is what
// was recorded of it, once it is answered; from that a goroutine of its own makes
// the spans, which go out by OTLP over HTTP.
//
// Whoever answers queries never waits: what the collector does not take in time
// is left out, a whole query at once, and counted. A nil Tracer traces nothing.
package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/textfile"
)

// Tracer traces queries. Its methods may be called from many goroutines.
type Tracer struct {
	sample   float64
	queries  sync.Pool // pools *tracing.Query
	ended    chan *tracing.Query
	provider *sdktrace.TracerProvider
	spans    spans
	exporter *exporter
	done     chan struct{}   // closed when the goroutine has ended
	stop     context.Context // ended when the tracer is closed
	end      context.CancelFunc

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
		sample: o.Sample, ended: make(chan *tracing.Query, maxWaiting), done: make(chan struct{}),
		exporter: &exporter{SpanExporter: to, report: o.Report, seldom: rate.Sometimes{First: 1, Interval: reportEvery}},
	}
	t.stop, t.end = context.WithCancel(context.Background())
	t.queries.New = func() any { return new(tracing.Query) }
	t.exporter.dropped = &t.dropped
	t.exporter.life, t.exporter.giveUp = context.WithCancel(context.Background())
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.exporter.lost)) // or the library writes to stderr
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // Begin has decided
		sdktrace.WithResource(o.resource()),
		sdktrace.WithBatcher(t.exporter,
			sdktrace.WithBlocking(), // the goroutine, not who answers queries
			sdktrace.WithMaxQueueSize(maxSpans), sdktrace.WithMaxExportBatchSize(maxBatch),
			sdktrace.WithBatchTimeout(batchTime), sdktrace.WithExportTimeout(exportTime)),
	)
	t.spans = spans{t.provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))}
	go t.run()
	return t, nil
}

// Begin returns where to note what becomes of a query, or nil if it is not
// traced: as its parent is, if it has one.
func (t *Tracer) Begin(p tracing.Parent) *tracing.Query {
	if t == nil {
		return nil
	}
	parent := parentOf(&p)
	if parent.IsValid() && !parent.IsSampled() || !parent.IsValid() && rand.Float64() >= t.sample {
		return nil
	}
	t.traced.Add(1)
	q := t.queries.Get().(*tracing.Query)
	q.Parent = p
	return q
}

// Finish takes in a query that is over. It does not wait.
func (t *Tracer) Finish(q *tracing.Query) {
	if t.stop.Err() == nil {
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
		case <-t.stop.Done():
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
	t.end()
	defer context.AfterFunc(ctx, t.exporter.giveUp)()
	<-t.done // it waits for sending, which giveUp ends
	err := t.provider.Shutdown(context.Background())
	t.exporter.giveUp()
	if ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("tracing: the collector did not take all spans within the %v that stopping leaves it", FlushTime))
	}
	return err
}

// maxHeaderBytes bounds a file of headers.
const maxHeaderBytes = 64 << 10

// ErrHeaders is returned when a file of headers is none.
var ErrHeaders = errors.New("a file of headers has lines of the form name: value")

// Options are what is traced, and where to, by the configuration and, where that
// leaves something open, by the environment. Version is that of the daemon.
type Options struct {
	config.Tracing
	Version string

	// Report is called, at most once a minute and from a goroutine of the tracer's,
	// with how many queries were left out and spans could not be sent since the last
	// call, and why the last one was. It may be nil.
	Report func(queries, spans uint64, why error)
}

// header is a line of a file of headers: a name that HTTP allows, and a value
// without control characters.
var header = regexp.MustCompile("^([-!#$%&'*+.^_`|~0-9A-Za-z]+)[ \t]*:[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)$")

// parseHeaders reads a file of headers. Empty lines and those that begin with # are
// left out.
func parseHeaders(text []byte) (map[string]string, error) {
	headers, number := map[string]string{}, 0
	for line := range bytes.Lines(text) {
		number++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		m := header.FindSubmatch(line)
		if m == nil {
			return nil, fmt.Errorf("%w: line %d is not", ErrHeaders, number) // it may hold a secret: it is not told
		}
		headers[string(m[1])] = string(m[2])
	}
	return headers, nil
}

// client returns what speaks to the collector.
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
		text, err := textfile.ReadRegular(o.HeadersFile, maxHeaderBytes)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrHeaders, err)
		}
		headers, err := parseHeaders(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", o.HeadersFile, err)
		}
		with = append(with, otlptracehttp.WithHeaders(headers))
	}
	if o.CAFile != "" || o.CertFile != "" || o.KeyFile != "" {
		_, c, err := access.ReadCredentials(access.Options{CA: o.CAFile, Cert: o.CertFile, Key: o.KeyFile})
		if err != nil {
			return nil, fmt.Errorf("TLS to the collector is not possible: %w", err)
		}
		with = append(with, otlptracehttp.WithTLSClientConfig(c))
	}
	return otlptracehttp.NewClient(with...), nil
}

// resource is whose spans they are. OTEL_RESOURCE_ATTRIBUTES may say more, and
// OTEL_SERVICE_NAME another name if the configuration does not.
func (o *Options) resource() *resource.Resource {
	with := []resource.Option{
		resource.WithSchemaURL(semconv.SchemaURL),
		resource.WithAttributes(semconv.ServiceName(o.Service), semconv.ServiceInstanceID(o.Instance), semconv.ServiceVersion(o.Version)),
		resource.WithFromEnv(),
	}
	if o.Service != defaultService {
		with = append(with, resource.WithAttributes(semconv.ServiceName(o.Service)))
	}
	r, _ := resource.New(context.Background(), with...) // without what of the environment cannot be read
	return r
}

// defaultService is service.name where nobody gives another.
const defaultService = "overlapd"

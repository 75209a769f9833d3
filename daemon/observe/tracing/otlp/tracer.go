// Package otlp traces queries and sends OpenTelemetry trace spans to a collector by OTLP
// over HTTP. A [Tracer] decides whether a query is traced, and receives its record, a
// [tracing.Query], when the query has been answered. A goroutine converts the records to
// trace spans.
//
// Answering queries never waits for the collector. What the collector does not accept in
// time is discarded and counted, a whole query at a time. A nil Tracer traces nothing.
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
	"github.com/overlapd/overlapd/internal/textfile"
)

// Tracer traces queries. Its methods may be called from many goroutines.
type Tracer struct {
	sample   float64
	queries  sync.Pool
	ended    chan *tracing.Query
	provider *sdktrace.TracerProvider
	spans    spans
	exporter *exporter

	// done is closed when the goroutine has ended.
	done chan struct{}

	// stop is done when the tracer is being closed.
	stop context.Context
	end  context.CancelFunc

	traced, dropped atomic.Uint64
}

// counts has the numbers of queries and trace spans since the tracer was created.
type counts struct {
	// Queries is the number of traced queries.
	Queries uint64

	// Dropped is the number of queries discarded because the collector was too slow.
	Dropped uint64

	// Exported is the number of trace spans that the collector has accepted, Failed that of
	// those it has not.
	Exported uint64
	Failed   uint64
}

// New returns a tracer, or an error if the options are invalid. It does not connect to the
// collector, which may be started later.
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
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.exporter.lost)) // otherwise the library writes to stderr
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithSampler(sdktrace.AlwaysSample()), // Begin has decided already
		sdktrace.WithResource(o.resource()),
		sdktrace.WithBatcher(t.exporter,
			sdktrace.WithBlocking(), // blocks the tracer's goroutine, not the one that answers queries
			sdktrace.WithMaxQueueSize(maxSpans), sdktrace.WithMaxExportBatchSize(maxBatch),
			sdktrace.WithBatchTimeout(batchTime), sdktrace.WithExportTimeout(exportTime)),
	)
	t.spans = spans{t.provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))}
	go t.run()
	return t, nil
}

// Begin returns a record for a query, or nil if the query is not traced. A query with a
// parent is traced if its parent is; others are sampled.
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

// Finish takes over the record of an answered query. It never blocks: if the queue is full,
// the record is discarded.
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

// errBehind is reported when the queue of ended queries is full.
var errBehind = errors.New("the collector takes less than is traced: trace a smaller share of the queries (tracing.sample)")

// free returns a record to the pool.
func (t *Tracer) free(q *tracing.Query) {
	q.Forget()
	t.queries.Put(q)
}

// Counts returns the counts so far. A nil Tracer has none.
func (t *Tracer) Counts() counts {
	if t == nil {
		return counts{}
	}
	return counts{
		Queries: t.traced.Load(), Dropped: t.dropped.Load(),
		Exported: t.exporter.exported.Load(), Failed: t.exporter.failed.Load(),
	}
}

// run converts records to trace spans until the tracer is closed and the queue is empty.
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

// Close sends what is queued until ctx is done, and stops the tracer. It must be called
// once. Queries that end later are discarded.
func (t *Tracer) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	t.end()
	defer context.AfterFunc(ctx, t.exporter.giveUp)()
	// The goroutine may be blocked by sending, which giveUp ends.
	<-t.done
	err := t.provider.Shutdown(context.Background())
	t.exporter.giveUp()
	if ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("tracing: the collector did not take all spans within the %v that stopping leaves it", FlushTime))
	}
	return err
}

// maxHeaderBytes limits the size of a file of headers.
const maxHeaderBytes = 64 << 10

// ErrHeaders is returned for an invalid file of headers.
var ErrHeaders = errors.New("a file of headers has lines of the form name: value")

// Options says what is traced and where to. What the configuration leaves open is taken
// from the environment. Version is that of the daemon.
type Options struct {
	config.Tracing
	Version string

	// Report is called at most once every reportEvery, from a goroutine of the tracer, with
	// the number of queries discarded and trace spans lost since the last call, and the
	// reason of the last loss. It may be nil.
	Report func(queries, spans uint64, why error)
}

// header matches a line of a file of headers: a valid HTTP field name, and a value without
// control characters.
var header = regexp.MustCompile("^([-!#$%&'*+.^_`|~0-9A-Za-z]+)[ \t]*:[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)$")

// parseHeaders parses a file of headers. It skips empty lines and lines that begin with #.
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
			return nil, fmt.Errorf("%w: line %d is not", ErrHeaders, number) // the line may contain a secret, so it is not quoted
		}
		headers[string(m[1])] = string(m[2])
	}
	return headers, nil
}

// client returns a client of the collector.
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

// resource describes the daemon as the source of trace spans. OTEL_RESOURCE_ATTRIBUTES can
// add attributes, and OTEL_SERVICE_NAME applies if the configuration does not set a name.
func (o *Options) resource() *resource.Resource {
	with := []resource.Option{
		resource.WithSchemaURL(semconv.SchemaURL),
		resource.WithAttributes(semconv.ServiceName(o.Service), semconv.ServiceInstanceID(o.Instance), semconv.ServiceVersion(o.Version)),
		resource.WithFromEnv(),
	}
	if o.Service != defaultService {
		with = append(with, resource.WithAttributes(semconv.ServiceName(o.Service)))
	}
	r, _ := resource.New(context.Background(), with...) // attributes that cannot be parsed are omitted
	return r
}

// defaultService is the service.name if nothing sets another.
const defaultService = "overlapd"

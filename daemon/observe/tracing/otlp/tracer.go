// Package otlp sends OpenTelemetry spans of queries to a collector. A [Tracer]
// decides whether a query is traced, and takes in a [tracing.Query], which is what
// was recorded of it, once it is answered; from that a goroutine of its own makes
// the spans, which go out by OTLP over HTTP.
//
// Whoever answers queries never waits: what the collector does not take in time
// is left out, a whole query at once, and counted. A nil Tracer traces nothing.
package otlp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
)

// Limits of what waits for the collector.
const (
	// maxWaiting is how many queries may wait to become spans. A query that
	// ends beyond that is left out.
	maxWaiting = 1024

	// maxSpans is how many spans may wait to be sent, and maxBatch how many are
	// sent at once.
	maxSpans = 4096
	maxBatch = 512

	// batchTime is how long a span waits for others at most.
	batchTime = time.Second

	// exportTime is how long sending a batch may take, attempts that follow a
	// failed one included. The first of these comes after retryFirst.
	exportTime = 10 * time.Second
	retryFirst = 500 * time.Millisecond

	// FlushTime is how long a daemon that stops may take to send what waits.
	FlushTime = 3 * time.Second
)

// scope names who made the spans.
const scope = "github.com/overlapd/overlapd/daemon/observe/tracing"

// Tracer traces queries. Its methods may be called from many goroutines.
type Tracer struct {
	sample   float64
	queries  sync.Pool // of *Query
	ended    chan *tracing.Query
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	exporter *exporter
	done     chan struct{} // closed when the goroutine has ended
	closing  atomic.Bool
	stop     chan struct{}

	traced, dropped atomic.Uint64
}

// Counts is what became of queries and spans since the tracer was made.
type Counts struct {
	Queries  uint64 // that were traced
	Dropped  uint64 // of them, left out because the collector is slow
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
	t.tracer = t.provider.Tracer(scope, trace.WithInstrumentationVersion(o.Version), trace.WithSchemaURL(semconv.SchemaURL))
	go t.run()
	return t, nil
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
		if o.Service == DefaultService || kv.Key != semconv.ServiceNameKey {
			kept = append(kept, kv)
		}
	}
	if both, err := resource.Merge(r, resource.NewSchemaless(kept...)); err == nil {
		return both
	}
	return r
}

// DefaultService is service.name where nobody gives another.
const DefaultService = "overlapd"

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

// End takes in a query that is over. It does not wait.
func (t *Tracer) End(q *tracing.Query) {
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
func (t *Tracer) Counts() Counts {
	if t == nil {
		return Counts{}
	}
	return Counts{
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
			t.emit(q)
			t.free(q)
			continue
		default:
		}
		select {
		case q := <-t.ended:
			t.emit(q)
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

// maxStateBytes is how long a tracestate may be that is passed on. W3C asks for
// 512 bytes at least.
const maxStateBytes = 4096

// parentOf returns the context of a request. What is malformed, or there more than
// once, is as if it were not there.
func parentOf(p *tracing.Parent) trace.SpanContext {
	if len(p.Traceparent) != 1 {
		return trace.SpanContext{}
	}
	c := propagation.MapCarrier{"traceparent": p.Traceparent[0]}
	if state := strings.Join(p.Tracestate, ","); state != "" && len(state) <= maxStateBytes {
		c["tracestate"] = state
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), c))
}

// sampled reports whether a query is traced: as its parent is, if it has one.
func sampled(parent trace.SpanContext, ratio float64) bool {
	if parent.IsValid() {
		return parent.IsSampled()
	}
	return ratio > 0 && rand.Float64() < ratio
}

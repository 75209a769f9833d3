package otlp

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
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

// reportEvery is how often somebody is told of losses at most.
const reportEvery = time.Minute

// exporter sends spans on and counts them. That some cannot be sent is told to
// people now and then, and to nobody else: the library would write it to stderr.
type exporter struct {
	to      sdktrace.SpanExporter
	tell    func(queries, spans uint64, why error)
	dropped *atomic.Uint64 // queries, the tracer's count

	life   context.Context // ends when sending is to end
	giveUp context.CancelFunc

	exported, failed atomic.Uint64

	mu struct {
		sync.Mutex
		told    time.Time // when a loss was told last
		dropped uint64    // how many had been reported, as the following
		failed  uint64
	}
}

func newExporter(to sdktrace.SpanExporter, tell func(queries, spans uint64, why error)) *exporter {
	e := &exporter{to: to, tell: tell}
	e.life, e.giveUp = context.WithCancel(context.Background())
	return e
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(e.life, cancel)
	defer stop()
	if err := e.to.ExportSpans(ctx, spans); err != nil {
		e.failed.Add(uint64(len(spans)))
		e.lost(err)
		return nil
	}
	e.exported.Add(uint64(len(spans)))
	return nil
}

// Shutdown implements sdktrace.SpanExporter.
func (e *exporter) Shutdown(ctx context.Context) error { return e.to.Shutdown(ctx) }

// report is told of what the library notices by itself, such as that the
// collector took a part of a batch only.
func (e *exporter) report(err error) { e.lost(err) }

// lost reports a loss, unless one was reported lately.
func (e *exporter) lost(err error) {
	if e.tell == nil {
		return
	}
	e.mu.Lock()
	now := time.Now()
	if !e.mu.told.IsZero() && now.Sub(e.mu.told) < reportEvery {
		e.mu.Unlock()
		return
	}
	dropped, failed := e.dropped.Load(), e.failed.Load()
	queries, spans := dropped-e.mu.dropped, failed-e.mu.failed
	e.mu.told, e.mu.dropped, e.mu.failed = now, dropped, failed
	e.mu.Unlock()
	e.tell(queries, spans, err)
}

// why returns an error if there was no time to send everything.
func (e *exporter) why(ctx context.Context) error {
	if ctx.Err() == nil {
		return nil
	}
	return fmt.Errorf("tracing: the collector did not take all spans within the %v that stopping leaves it", FlushTime)
}

package otlp

import (
	"context"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
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

// reportEvery is how often losses are reported at most.
const reportEvery = time.Minute

// exporter sends spans on and counts them. That some cannot be sent is reported to
// people now and then, and to nobody else: the library would write it to stderr.
type exporter struct {
	sdktrace.SpanExporter
	dropped *atomic.Uint64 // queries, the tracer's count

	life   context.Context // ends when sending is to end
	giveUp context.CancelFunc

	exported, failed atomic.Uint64

	report func(queries, spans uint64, why error)
	seldom rate.Sometimes // guards what was reported last
	last   struct{ dropped, failed uint64 }
}

// ExportSpans implements sdktrace.SpanExporter.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.life, cancel)()
	if err := e.SpanExporter.ExportSpans(ctx, spans); err != nil {
		e.failed.Add(uint64(len(spans)))
		e.lost(err)
		return nil
	}
	e.exported.Add(uint64(len(spans)))
	return nil
}

// lost reports a loss, unless one was reported lately. It may be one that the library
// notices by itself, such as that the collector took a part of a batch only.
func (e *exporter) lost(err error) {
	if e.report == nil {
		return
	}
	e.seldom.Do(func() {
		dropped, failed := e.dropped.Load(), e.failed.Load()
		queries, spans := dropped-e.last.dropped, failed-e.last.failed
		e.last.dropped, e.last.failed = dropped, failed
		e.report(queries, spans, err)
	})
}

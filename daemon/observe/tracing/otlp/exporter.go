package otlp

import (
	"context"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/time/rate"
)

// Limits on what is queued for the collector.
const (
	// maxWaiting is the number of ended queries that may be queued for conversion to trace
	// spans. Further queries are discarded.
	maxWaiting = 1024

	// maxSpans is the number of trace spans that may be queued for sending, maxBatch how
	// many are sent at a time.
	maxSpans = 4096
	maxBatch = 512

	// batchTime is how long a trace span waits for others before it is sent.
	batchTime = time.Second

	// exportTime is how long sending a batch may take, including retries. The first retry
	// follows after retryFirst.
	exportTime = 10 * time.Second
	retryFirst = 500 * time.Millisecond

	// FlushTime is how long a stopping daemon may take to send what is queued.
	FlushTime = 3 * time.Second
)

// reportEvery is the minimum interval between reports of losses.
const reportEvery = time.Minute

// exporter sends trace spans and counts them. Failures are reported from time to time; the
// library would write each to stderr.
type exporter struct {
	sdktrace.SpanExporter

	// dropped counts discarded queries. It belongs to the tracer.
	dropped *atomic.Uint64

	// life is done when sending must end. giveUp ends it.
	life   context.Context
	giveUp context.CancelFunc

	exported, failed atomic.Uint64

	// report is Options.Report.
	report func(queries, spans uint64, why error)

	// seldom limits the reports and guards last, the counts at the last one.
	seldom rate.Sometimes
	last   struct{ dropped, failed uint64 }
}

// ExportSpans implements sdktrace.SpanExporter. It never returns an error, because it
// handles failures itself.
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

// lost reports a loss, unless one was reported recently. err may also come from the
// library, for example because the collector accepted only a part of a batch.
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

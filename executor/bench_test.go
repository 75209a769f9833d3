package executor

import (
	"testing"
	"time"

	"github.com/overlapd/overlapd/models"
)

// BenchmarkRound measures what a round of one span costs beside the engine:
// from Run, through the worker and back, to the outcome. It sleeps between
// messages, or polls for a moment first.
func BenchmarkRound(b *testing.B) {
	b.Run("sleep", func(b *testing.B) { benchmarkRound(b, 0) })
	b.Run("poll", func(b *testing.B) { benchmarkRound(b, 200*time.Microsecond) })
}

func benchmarkRound(b *testing.B, poll time.Duration) {
	f := startReady(b, func(o *Options) { o.Poll = poll }, 1)
	span := f.whole(0, 0, "x")
	b.ReportAllocs()
	for b.Loop() {
		span.Span.Batch++
		if err := f.Run(uint64(span.Span.Batch), []SpanRequest{span}); err != nil {
			b.Fatal(err)
		}
		o := <-f.Outcomes()
		if o.Spans[0].Status != models.SpanDone {
			b.Fatal(o.Spans[0].Err)
		}
		o.Spans[0].Queries[0].Release()
	}
}

// BenchmarkRoundsAhead keeps a second round in the worker's socket, as the
// daemon does: the worker never waits for it.
func BenchmarkRoundsAhead(b *testing.B) {
	f := startReady(b, nil, 1)
	span := f.whole(0, 0, "x")
	run := func() {
		span.Span.Batch++
		if err := f.Run(uint64(span.Span.Batch), []SpanRequest{span}); err != nil {
			b.Fatal(err)
		}
	}
	run()
	b.ReportAllocs()
	for b.Loop() {
		run()
		o := <-f.Outcomes()
		o.Spans[0].Queries[0].Release()
	}
	o := <-f.Outcomes()
	o.Spans[0].Queries[0].Release()
}

// BenchmarkGroup measures a round of two spans.
func BenchmarkGroup(b *testing.B) {
	f := startReady(b, nil, 2)
	spans := []SpanRequest{f.whole(0, 0, "x"), f.whole(1, 0, "y")}
	b.ReportAllocs()
	for b.Loop() {
		for i := range spans {
			spans[i].Span.Batch++
		}
		if err := f.Run(uint64(spans[0].Span.Batch), spans); err != nil {
			b.Fatal(err)
		}
		o := <-f.Outcomes()
		for i := range o.Spans {
			o.Spans[i].Queries[0].Release()
		}
	}
}

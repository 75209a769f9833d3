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

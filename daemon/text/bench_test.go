package text

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkShortBesideLong takes a short text at a time while four clients send texts of a megabyte, each
// the next one a moment after its answer, and reports percentiles of its latency in microseconds. The
// model takes no time.
func BenchmarkShortBesideLong(b *testing.B) {
	f := newFake(b, textOf(b, "mean", "no", 16, 512))
	s := f.server()
	ask := func(text string) {
		a, err := s.Answer(b.Context(), f.request(text))
		if err != nil {
			b.Error(err)
			return
		}
		a.Release()
	}
	long := strings.Repeat("the service answers a query before its deadline, or says early that it cannot. ", 1<<20/80)
	var over atomic.Bool
	var clients sync.WaitGroup
	var answered atomic.Int64
	for range 4 {
		clients.Go(func() {
			for !over.Load() {
				ask(long)
				answered.Add(1)
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		ask("a short text")
		took = append(took, time.Since(began))
		time.Sleep(time.Millisecond)
	}
	over.Store(true)
	clients.Wait()
	slices.Sort(took)
	at := func(share float64) float64 { return float64(took[int(share*float64(len(took)-1))]) / 1e3 }
	b.ReportMetric(at(0.5), "p50-µs")
	b.ReportMetric(at(0.95), "p95-µs")
	b.ReportMetric(float64(answered.Load())/b.Elapsed().Seconds(), "long/s")
}

package daemon

import (
	"context"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/overlap/journal"
)

// observing is how a daemon can be looked at while it serves.
type observing struct {
	name                       string
	metrics, journal, watchers bool
}

// startObserved starts a backend on the executor that takes no time, and all who
// look at it. What it returns is to be called at the end.
func startObserved(b *testing.B, o observing) (*backend, func()) {
	var log *journal.Writer
	var ends []func()
	if o.journal {
		var err error
		if log, err = journal.Open(b.TempDir(), journal.DefaultOptions()); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { log.Close() }) // before which the loop has ended
	}
	back := startInstantLogged(b, 2, func(c *config.Config) { c.Metrics = o.metrics }, log)
	if o.metrics {
		ends = append(ends, scrapeEvery(b, back, 5*time.Second))
	}
	if o.watchers {
		ends = append(ends, readEvents(b, back))
	}
	return back, func() {
		for _, end := range ends {
			end()
		}
	}
}

// readEvents reads what a dashboard reads, until the function that it returns is
// called.
func readEvents(b *testing.B, back *backend) (end func()) {
	addr := serveHTTP(b, queriesOf(back, testLimits()), testLimits())
	ctx, stop := context.WithCancel(context.Background())
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr.String()+"/overlapd/events", nil)
	if err != nil {
		b.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(io.Discard, a.Body) })
	return func() {
		stop()
		reading.Wait()
		a.Body.Close()
	}
}

// processorTime returns what this process has taken of its processors.
func processorTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// BenchmarkObserved is what each way of looking at a daemon adds to the way of a
// query through the loop, on an executor that takes no time: time of processors,
// of blocks that alternate with those of a daemon at which nobody looks. With
// 2,000 queries a block, a tenth of which is a frame of the dashboard.
func BenchmarkObserved(b *testing.B) {
	const queries = 2000
	for _, o := range []observing{
		{"metrics", true, false, false}, {"journal", false, true, false}, {"dashboard", false, false, true}, {"all", true, true, true},
	} {
		b.Run(o.name, func(b *testing.B) {
			plain, _ := startObserved(b, observing{})
			looked, end := startObserved(b, o)
			defer end()
			off, on := newAsker(plain, 0), newAsker(looked, 0)
			var offs, ons, ratios []float64
			block := func(a *asker) float64 {
				begin := processorTime(b)
				for range queries {
					a.ask(b)
				}
				return float64(processorTime(b)-begin) / queries
			}
			for b.Loop() {
				x, y := block(off), block(on)
				offs, ons, ratios = append(offs, x), append(ons, y), append(ratios, y/x)
			}
			b.ReportMetric(0, "ns/op")
			b.ReportMetric(middle(offs), "off-ns/query")
			b.ReportMetric(middle(ons), "on-ns/query")
			b.ReportMetric(100*(middle(ratios)-1), "overhead-%")
		})
	}
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// scrapeEvery scrapes until the function that it returns is called.
func scrapeEvery(t testing.TB, b *backend, pause time.Duration) (end func()) {
	text := publishedBy(b).exporter("test", "overlap")
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(pause)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if _, err := text(); err != nil {
					t.Error(err)
				}
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// BenchmarkQuery is the way of a query through the loop, on an executor that takes no time.
func BenchmarkQuery(b *testing.B) {
	a := newAsker(startInstant(b, 2, nil), 0)
	b.ReportAllocs()
	for b.Loop() {
		a.ask(b)
	}
}

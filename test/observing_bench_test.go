package test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const (
	blockTime   = 200 * time.Millisecond // that one daemon is asked before it is the other's turn
	scrapePause = 5 * time.Second
	openRate    = 400 // queries per second
)

// observed is a daemon of which the cost is measured.
type observed struct {
	*process
	turns   []turn
	queries float64
	seconds float64 // of processor
	took    []time.Duration
}

// turn is what one block of queries cost.
type turn struct{ micros, p50 float64 }

// BenchmarkObserving compares a daemon of which everything is observed (metrics
// that are scraped every 5 s, a decision log, a dashboard that is open), or one
// of these, with one of which nothing is. Short blocks alternate between the two, so that
// both see the same machine. What it reports is time of the daemon's processor
// for each query that it answered: over all blocks, and the quartiles of the
// ratios of neighbouring blocks; and the p50 of all queries.
func BenchmarkObserving(b *testing.B) {
	for _, load := range []struct {
		name string
		ask  func(*observed) []time.Duration
	}{
		{"closed", func(o *observed) []time.Duration { return o.closed(1) }},
		{"closed4", func(o *observed) []time.Duration { return o.closed(4) }},
		{"open", (*observed).open},
	} {
		for _, w := range watchings {
			b.Run(load.name+"/"+w.name, func(b *testing.B) { compare(b, w, load.ask) })
		}
	}
}

// watching is what of a daemon is observed.
type watching struct {
	name                        string
	metrics, journal, dashboard bool
}

var watchings = []watching{
	{"all", true, true, true}, {"metrics", true, false, false}, {"journal", false, true, false}, {"dashboard", false, false, true},
	{"nothing", false, false, false}, // two that are alike: how far to trust the others
}

// compare runs the two daemons in turns.
func compare(b *testing.B, w watching, ask func(*observed) []time.Duration) {
	off := &observed{process: serve(b, watching{}.config())}
	on := &observed{process: serve(b, w.config())}
	defer w.watch(b, on.process)()
	pair := []*observed{off, on}
	for _, o := range pair {
		o.closed(1) // until caches and pools are warm
	}
	for b.Loop() {
		for _, o := range pair {
			o.turn(ask)
		}
		slices.Reverse(pair) // none is always the first
	}
	var ratios []float64
	for i := range on.turns {
		ratios = append(ratios, on.turns[i].micros/off.turns[i].micros)
	}
	slices.Sort(ratios)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(off.perQuery(), "off-cpu-µs/query")
	b.ReportMetric(on.perQuery(), "on-cpu-µs/query")
	b.ReportMetric(on.perQuery()/off.perQuery(), "on/off")
	b.ReportMetric(ratios[len(ratios)/4], "on/off-q25")
	b.ReportMetric(ratios[len(ratios)/2], "on/off-q50")
	b.ReportMetric(ratios[len(ratios)*3/4], "on/off-q75")
	b.ReportMetric(median(off.took), "off-p50-µs")
	b.ReportMetric(median(on.took), "on-p50-µs")
}

// config is that of the daemon.
func (w watching) config() config {
	return config{
		top: fmt.Sprintf("metrics = %t", w.metrics), tables: fmt.Sprintf("[decisions]\nlog = %t", w.journal),
		services: []service{{name: "identity", model: "zoo:tiny_identity", lines: `queue_limit = 4096`}},
	}
}

// watch scrapes a daemon and keeps its dashboard open until the function that it
// returns is called.
func (w watching) watch(b *testing.B, p *process) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	get := func(path string, to io.Writer) {
		r, err := http.NewRequestWithContext(ctx, "GET", p.url(path), nil)
		if err != nil {
			b.Error(err)
			return
		}
		r.Close = true
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			if ctx.Err() == nil {
				b.Error(err)
			}
			return
		}
		defer a.Body.Close()
		if a.StatusCode != http.StatusOK {
			b.Errorf("%s: %s", path, a.Status)
		}
		io.Copy(to, a.Body) // the events end with ctx
	}
	var watchers sync.WaitGroup
	if w.dashboard {
		watchers.Go(func() { get("/overlapd/events", io.Discard) })
	}
	watchers.Go(func() {
		if !w.metrics {
			return
		}
		tick := time.NewTicker(scrapePause)
		defer tick.Stop()
		for {
			get("/metrics", io.Discard)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	return func() { cancel(); watchers.Wait() }
}

// turn asks for a block, and notes what it cost.
func (o *observed) turn(ask func(*observed) []time.Duration) {
	before := o.processorSeconds()
	took := ask(o)
	cost := o.processorSeconds() - before
	o.seconds += cost
	o.queries += float64(len(took))
	o.took = append(o.took, took...)
	o.turns = append(o.turns, turn{micros: cost / float64(len(took)) * 1e6, p50: median(took)})
}

func (o *observed) perQuery() float64 { return o.seconds / o.queries * 1e6 }

// processorSeconds returns the time of processors that the daemon, without its
// workers, has taken: the sum over its threads, to the nanosecond.
func (o *observed) processorSeconds() float64 {
	tasks := fmt.Sprintf("/proc/%d/task", o.cmd.Process.Pid)
	list, err := os.ReadDir(tasks)
	if err != nil {
		o.t.Fatal(err)
	}
	var ns uint64
	for _, task := range list {
		text, err := os.ReadFile(tasks + "/" + task.Name() + "/schedstat")
		if err != nil {
			continue // Go ends no threads but those that a goroutine held for itself
		}
		n, err := strconv.ParseUint(strings.Fields(string(text))[0], 10, 64)
		if err != nil {
			o.t.Fatal(err)
		}
		ns += n
	}
	return float64(ns) / 1e9
}

// identityBody is a query of tiny_identity.
var identityBody = []byte(`{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,16],"data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}]}`)

// one asks once.
func (o *observed) one(c *http.Client) time.Duration {
	begin := time.Now()
	a, err := c.Post(o.inferURL("identity"), "application/json", bytes.NewReader(identityBody))
	if err != nil {
		o.t.Error(err)
		return 0
	}
	defer a.Body.Close()
	if text, err := io.ReadAll(a.Body); err != nil || a.StatusCode != http.StatusOK {
		o.t.Errorf("%s %s %v", a.Status, text, err)
	}
	return time.Since(begin)
}

// closed asks on so many connections, one query after another.
func (o *observed) closed(connections int) []time.Duration {
	return o.share(connections, func(c *http.Client, end time.Time, note func(time.Duration)) {
		for time.Now().Before(end) {
			note(o.one(c))
		}
	})
}

// open asks at a fixed rate, whatever becomes of the queries before.
func (o *observed) open() []time.Duration {
	begin := time.Now()
	var n atomic.Int64
	return o.share(16, func(c *http.Client, end time.Time, note func(time.Duration)) {
		for {
			due := begin.Add(time.Duration(n.Add(1)) * time.Second / openRate)
			if due.After(end) {
				return
			}
			time.Sleep(time.Until(due))
			o.one(c)
			note(time.Since(due))
		}
	})
}

// share lets so many clients with a connection each ask for a block.
func (o *observed) share(clients int, ask func(c *http.Client, end time.Time, note func(time.Duration))) []time.Duration {
	end := time.Now().Add(blockTime)
	all := make([][]time.Duration, clients)
	var running sync.WaitGroup
	for i := range clients {
		running.Go(func() {
			transport := &http.Transport{MaxIdleConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			ask(&http.Client{Transport: transport}, end, func(took time.Duration) { all[i] = append(all[i], took) })
		})
	}
	running.Wait()
	return slices.Concat(all...)
}

func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2]) / float64(time.Microsecond)
}

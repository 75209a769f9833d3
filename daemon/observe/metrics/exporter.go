package metrics

import (
	"bytes"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// Fresh is for how long the same text answers every scrape.
const Fresh = 250 * time.Millisecond

// ContentType is that of the text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// Exporter makes the text that Prometheus reads. It may be used by several
// goroutines: one makes the text, and the others wait for it.
type Exporter struct {
	source   func() *Snapshot
	registry *prometheus.Registry
	now      func() time.Duration
	fresh    time.Duration

	mu struct {
		sync.Mutex
		text []byte
		at   time.Duration // of the text
	}
}

// NewExporter returns an exporter of what source tells, which is asked by one
// goroutine at a time and must not wait for long.
func NewExporter(source func() *Snapshot) *Exporter {
	begin := time.Now()
	x := &Exporter{
		source: source, registry: prometheus.NewRegistry(), fresh: Fresh,
		now: func() time.Duration { return time.Since(begin) },
	}
	x.registry.MustRegister(x, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return x
}

// Describe implements [prometheus.Collector].
func (x *Exporter) Describe(to chan<- *prometheus.Desc) {
	for i := range families {
		to <- families[i].desc
	}
}

// Collect implements [prometheus.Collector].
func (x *Exporter) Collect(to chan<- prometheus.Metric) {
	s := x.source()
	for i := range families {
		families[i].values(s, &emitter{family: &families[i], to: to})
	}
}

// Text returns all metrics in Prometheus's text format, at most Fresh old. The
// caller must not change it. An error is a defect in overlapd: two metrics with
// the same name and labels.
func (x *Exporter) Text() ([]byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if now := x.now(); x.mu.text == nil || now-x.mu.at >= x.fresh {
		text, err := x.encode()
		if err != nil {
			return nil, err
		}
		x.mu.text, x.mu.at = text, now
	}
	return x.mu.text, nil
}

func (x *Exporter) encode() ([]byte, error) {
	gathered, err := x.registry.Gather()
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	for _, f := range gathered {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

// Package metrics serves the daemon's metrics to Prometheus. A [Recorder] counts the events
// of the scheduler goroutine. The exporter, made by [NewExporter], converts these counts
// and the published status to text; [Scrape] is what it reads besides the Recorder. Only
// package daemon uses this package.
//
// Metrics that Triton has too keep Triton's names and meanings (nv_inference_*, nv_gpu_*),
// so that its dashboards and perf_analyzer work unchanged. docs/metrics.md lists all
// metrics, and a test compares the list with this package. Label values come from the
// configuration or from lists in the program, never from a request, so the number of
// services limits the number of series.
package metrics

import (
	"bytes"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// freshFor is how long a text is reused for further scrapes, which limits what frequent
// scrapes cost.
const freshFor = 250 * time.Millisecond

// ContentType is the content type of Prometheus's text format.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// exporter produces the text for Prometheus. Several goroutines may call Text: one produces
// the text and the others wait for it.
type exporter struct {
	version, policy string
	source          func() Scrape
	recorder        *Recorder
	registry        *prometheus.Registry
	now             func() time.Duration

	mu struct {
		sync.Mutex
		text []byte

		// at is when the text was produced.
		at time.Duration
	}
}

// NewExporter returns an exporter of a recorder and a source. source is called by one
// goroutine at a time and must return quickly, because scrapes wait for it.
func NewExporter(version, policy string, recorder *Recorder, source func() Scrape) *exporter {
	begin := time.Now()
	x := &exporter{
		version: version, policy: policy, recorder: recorder, source: source, registry: prometheus.NewRegistry(),
		now: func() time.Duration { return time.Since(begin) },
	}
	x.registry.MustRegister(x, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return x
}

// Describe implements [prometheus.Collector].
func (x *exporter) Describe(to chan<- *prometheus.Desc) {
	for i := range families {
		to <- families[i].desc
	}
}

// Collect implements [prometheus.Collector]. It emits the families from one snapshot, so
// that they are consistent with each other.
func (x *exporter) Collect(to chan<- prometheus.Metric) {
	s := scrape{Scrape: x.source(), version: x.version, policy: x.policy, record: newRecord()}
	if latest := x.recorder.latest.Load(); latest != nil {
		s.record = *latest // immutable
	}
	for i := range families {
		families[i].values(&s, &emitter{&families[i], &s.record, to})
	}
}

// Text returns all metrics in Prometheus's text format, at most freshFor old. The caller
// must not modify it. An error is a defect in overlapd: two metrics have the same name and
// labels.
func (x *exporter) Text() ([]byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	if x.mu.text != nil && now-x.mu.at < freshFor {
		return x.mu.text, nil
	}
	// Under the lock, so that concurrent scrapes cost one snapshot.
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
	x.mu.text, x.mu.at = b.Bytes(), now
	return x.mu.text, nil
}

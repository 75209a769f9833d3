// Package metrics answers Prometheus. A [Recorder] listens to the events of a
// scheduler goroutine and counts them; the exporter makes text of what they have
// counted and of the statuses that the goroutines publish. The daemon wires both;
// nobody else uses this package.
//
// What Triton counts too has Triton's name and meaning (nv_inference_*, nv_gpu_*), so
// that its dashboards and perf_analyzer work unchanged. docs/metrics.md has the list,
// which a test holds to the families of this package, and what a scrape costs. Labels
// come from the configuration or from lists in the program, never from a request, so
// the number of series is bounded by the number of services.
package metrics

import (
	"bytes"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/expfmt"
)

// freshFor is for how long the same text answers every scrape.
const freshFor = 250 * time.Millisecond

// ContentType is that of the text.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// exporter makes the text that Prometheus reads. It may be used by several
// goroutines: one makes the text, and the others wait for it.
type exporter struct {
	version, policy string
	source          func() Scrape
	recorder        *Recorder
	registry        *prometheus.Registry
	now             func() time.Duration

	mu struct {
		sync.Mutex
		text []byte
		at   time.Duration // when the text was made
	}
}

// NewExporter returns an exporter of what a recorder and source have. Source is
// called by one goroutine at a time and must not wait for long.
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

// Collect implements [prometheus.Collector].
func (x *exporter) Collect(to chan<- prometheus.Metric) {
	s := scrape{Scrape: x.source(), version: x.version, policy: x.policy, record: newRecord()}
	if latest := x.recorder.latest.Load(); latest != nil {
		s.record = *latest // which nobody changes
	}
	for i := range families {
		families[i].values(&s, &emitter{&families[i], &s.record, to})
	}
}

// Text returns all metrics in Prometheus's text format, at most a quarter of a second old. The
// caller must not change it. An error is a defect in overlapd: two metrics with
// the same name and labels.
func (x *exporter) Text() ([]byte, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	now := x.now()
	if x.mu.text != nil && now-x.mu.at < freshFor {
		return x.mu.text, nil
	}
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

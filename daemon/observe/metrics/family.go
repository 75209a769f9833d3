package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Labels are all that a metric may have.
var Labels = []string{"service", "model", "version", "reason", "policy", "gpu_uuid"}

// kind is the type of a metric.
type kind int

const (
	counter kind = iota
	gauge
	histogram
)

func (k kind) String() string { return [...]string{"counter", "gauge", "histogram"}[k] }

// family is a metric: its name and meaning, and where its values are found in a
// snapshot.
type family struct {
	name   string
	kind   kind
	help   string
	labels []string
	values func(*Snapshot, *emitter)

	desc *prometheus.Desc
}

// families are all metrics, in the order in which they are documented.
var families = describe(tritonFamilies, serviceFamilies, schedulerFamilies, predictionFamilies, tracingFamilies, storageFamilies, gpuFamilies)

func describe(lists ...[]family) (all []family) {
	for _, list := range lists {
		for _, f := range list {
			f.desc = prometheus.NewDesc(f.name, f.help, f.labels, nil)
			all = append(all, f)
		}
	}
	return all
}

// emitter makes the values of one family.
type emitter struct {
	family *family
	to     chan<- prometheus.Metric
}

// value tells a counter or gauge.
func (e *emitter) value(v float64, labels ...string) {
	t := prometheus.CounterValue
	if e.family.kind == gauge {
		t = prometheus.GaugeValue
	}
	e.tell(prometheus.NewConstMetric(e.family.desc, t, v, labels...))
}

func (e *emitter) histogram(h *Histogram, labels ...string) {
	count, buckets := h.cumulative()
	e.tell(prometheus.NewConstHistogram(e.family.desc, count, h.sum, buckets, labels...))
}

// tell passes on a value, or why there is none, which fails the scrape and not
// the daemon.
func (e *emitter) tell(m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(e.family.desc, err)
	}
	e.to <- m
}

// number is what values are made of.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// ofService is a metric with one value for each service.
func ofService[N number](name string, k kind, help string, value func(*Service) N) family {
	return family{name: name, kind: k, help: help, labels: []string{"service"}, values: func(s *Snapshot, e *emitter) {
		for i := range s.Services {
			e.value(float64(value(&s.Services[i])), s.Services[i].Name)
		}
	}}
}

// byReason is a counter with a value for each service and reason.
func byReason(name, help string, counts func(*Service) []Count) family {
	return family{name: name, kind: counter, help: help, labels: []string{"service", "reason"}, values: func(s *Snapshot, e *emitter) {
		for i := range s.Services {
			for _, c := range counts(&s.Services[i]) {
				e.value(float64(c.N), s.Services[i].Name, c.Reason)
			}
		}
	}}
}

// histogramOfService is a histogram for each service.
func histogramOfService(name, help string, of func(*queries) *Histogram) family {
	return family{name: name, kind: histogram, help: help, labels: []string{"service"}, values: func(s *Snapshot, e *emitter) {
		for i := range s.Services {
			if sv := &s.Services[i]; sv.Slot < len(s.Record.services) {
				e.histogram(of(&s.Record.services[sv.Slot]), sv.Name)
			}
		}
	}}
}

// whole is a metric of the daemon with one value.
func whole[N number](name string, k kind, help string, value func(*Snapshot) N) family {
	return family{name: name, kind: k, help: help, values: func(s *Snapshot, e *emitter) { e.value(float64(value(s))) }}
}

// histogramOf is a histogram of the daemon.
func histogramOf(name, help string, of func(*Record) *Histogram) family {
	return family{name: name, kind: histogram, help: help, values: func(s *Snapshot, e *emitter) { e.histogram(of(s.Record)) }}
}

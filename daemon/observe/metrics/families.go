package metrics

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/status"
	"github.com/overlapd/overlapd/overlap"
)

// kind is the type of a metric.
type kind = prometheus.ValueType

// Types of metrics. The client library has no value type for histograms, so the untyped one
// stands for them: each of their values is emitted as a histogram.
const (
	counter   = prometheus.CounterValue
	gauge     = prometheus.GaugeValue
	histogram = prometheus.UntypedValue
)

// family is a metric with a value for each combination of labels. values emits its current
// values.
type family struct {
	name   string
	kind   kind
	help   string
	labels []string
	values func(*scrape, *emitter)

	desc *prometheus.Desc
}

// families lists all metrics in the order in which they are documented.
var families = describe(tritonFamilies, serviceFamilies, loadFamilies, schedulerFamilies, predictionFamilies, tracingFamilies, memoryFamilies, storageFamilies, gpuFamilies)

// describe concatenates lists of families and creates their descriptions.
func describe(lists ...[]family) (all []family) {
	for _, list := range lists {
		for _, f := range list {
			f.desc = prometheus.NewDesc(f.name, f.help, f.labels, nil)
			all = append(all, f)
		}
	}
	return all
}

// emitter emits the values of one family.
type emitter struct {
	family *family
	record *record
	to     chan<- prometheus.Metric
}

// value emits the value of a counter or gauge.
func (e *emitter) value(v float64, labels ...string) {
	e.emit(prometheus.NewConstMetric(e.family.desc, e.family.kind, v, labels...))
}

// histogram emits a histogram.
func (e *emitter) histogram(h *distribution, labels ...string) {
	count, buckets := h.cumulative()
	e.emit(prometheus.NewConstHistogram(e.family.desc, count, h.sum, buckets, labels...))
}

// emit emits a value. An error fails the scrape but not the daemon.
func (e *emitter) emit(m prometheus.Metric, err error) {
	if err != nil {
		m = prometheus.NewInvalidMetric(e.family.desc, err)
	}
	e.to <- m
}

// number is a type whose values convert to float64.
type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// perService returns a metric with values for each service.
func perService(name string, k kind, help string, labels []string, values func(*emitter, *status.Service)) family {
	return family{name: name, kind: k, help: help, labels: labels, values: func(s *scrape, e *emitter) {
		for _, sv := range s.services() {
			values(e, sv)
		}
	}}
}

// ofService returns a metric with one value for each service.
func ofService[N number](name string, k kind, help string, value func(*status.Service) N) family {
	return perService(name, k, help, []string{"service"}, func(e *emitter, s *status.Service) { e.value(float64(value(s)), s.Name) })
}

// byReason returns a counter with a value for each service and reason. The usual reasons
// are emitted from the start, so that rates begin at 0; others once they have occurred.
func byReason(name, help string, counts func(*status.Service) map[string]uint64, usual ...overlap.Reason) family {
	return perService(name, counter, help, []string{"service", "reason"}, func(e *emitter, s *status.Service) {
		all := counts(s)
		for r := range overlap.ReasonCount {
			if n := all[r.String()]; n > 0 || slices.Contains(usual, r) {
				e.value(float64(n), s.Name, r.String())
			}
		}
	})
}

// histogramOfService returns a metric with a histogram for each service.
func histogramOfService(name, help string, of func(*queries) *distribution) family {
	return perService(name, histogram, help, []string{"service"}, func(e *emitter, s *status.Service) {
		// A service that was just added may be in the status but not in the record.
		for _, q := range e.record.services {
			if q.name == s.Name {
				e.histogram(of(q), s.Name)
			}
		}
	})
}

// whole returns a metric with one value for the daemon.
func whole[N number](name string, k kind, help string, value func(*scrape) N) family {
	return family{name: name, kind: k, help: help, values: func(s *scrape, e *emitter) { e.value(float64(value(s))) }}
}

// ofDevice returns a counter with a value for each device. If the configuration names no
// device, its label is empty, which Prometheus treats as absent.
func ofDevice[N number](name, help string, value func(*status.Device) N) family {
	return family{name: name, kind: counter, help: help, labels: []string{"device"}, values: func(s *scrape, e *emitter) {
		for _, d := range s.devices() {
			e.value(float64(value(&d)), d.Name)
		}
	}}
}

// histogramOf returns a metric with one histogram for the daemon.
func histogramOf(name, help string, of func(*groups) *distribution) family {
	return family{name: name, kind: histogram, help: help, values: func(s *scrape, e *emitter) { e.histogram(of(&s.record.groups)) }}
}

// tritonFamilies have Triton's names, labels and units.
var tritonFamilies = []family{
	ofModel("nv_inference_request_success", "Requests answered with outputs.",
		func(c *query.Counts) float64 { return float64(c.Success.Count) }),
	perService("nv_inference_request_failure", counter,
		"Requests answered with an error, by Triton's reasons: REJECTED, CANCELED, BACKEND, OTHER.",
		[]string{"model", "version", "reason"}, func(e *emitter, s *status.Service) {
			for _, c := range s.Requests.Failures {
				e.value(float64(c.Count), query.ModelOf(s.Name), s.Version, c.Kind)
			}
		}),
	ofModel("nv_inference_count", "Queries answered with outputs; a request of batch size n counts n.",
		func(c *query.Counts) float64 { return float64(c.Queries) }),
	ofModel("nv_inference_exec_count", "Batches that completed.",
		func(c *query.Counts) float64 { return float64(c.Executions) }),
	ofModel("nv_inference_request_duration_us", "Total time of the successful requests, in microseconds.",
		func(c *query.Counts) float64 { return micros(c.Success.Took) }),
	ofModel("nv_inference_queue_duration_us", "Time that the successful requests were queued before their first span, in microseconds.",
		func(c *query.Counts) float64 { return micros(c.Queue.Took) }),
	// Gathering inputs and splitting outputs are part of the first and the last span.
	// Triton's dashboards query all three metrics.
	ofModel("nv_inference_compute_input_duration_us", "Always 0: gathering inputs is part of the first span.",
		func(*query.Counts) float64 { return 0 }),
	ofModel("nv_inference_compute_infer_duration_us", "Time in which spans of the successful requests ran, in microseconds.",
		func(c *query.Counts) float64 { return micros(c.Compute.Took) }),
	ofModel("nv_inference_compute_output_duration_us", "Always 0: splitting outputs is part of the last span.",
		func(*query.Counts) float64 { return 0 }),
	perService("nv_inference_pending_request_count", gauge, "Requests queued before their first span.",
		[]string{"model", "version"}, func(e *emitter, s *status.Service) { e.value(float64(s.Queued), query.ModelOf(s.Name), s.Version) }),
}

// ofModel returns a counter with a value for each service, with Triton's labels.
func ofModel(name, help string, value func(*query.Counts) float64) family {
	return perService(name, counter, help, []string{"model", "version"}, func(e *emitter, s *status.Service) {
		e.value(value(&s.Requests), query.ModelOf(s.Name), s.Version)
	})
}

// micros returns whole microseconds, Triton's unit of time.
func micros(d time.Duration) float64 { return float64(d / time.Microsecond) }

// serviceFamilies describe each service and its queries.
var serviceFamilies = []family{
	ofService("overlapd_service_ready", gauge, "1 if the service can answer queries, else 0.", func(s *status.Service) int { return whether(s.Ready) }),
	ofService("overlapd_service_given_up", gauge, "1 if the service was given up because its worker was lost too often or did not fit the device, else 0.",
		func(s *status.Service) int { return whether(s.Fault != "") }),
	perService("overlapd_worker_ready", gauge, "1 if the service's worker on the device can run spans, else 0; only in a pool.", []string{"service", "device"},
		func(e *emitter, s *status.Service) {
			for _, r := range s.Replicas {
				e.value(float64(whether(r.Ready)), s.Name, r.Device)
			}
		}),
	perService("overlapd_variant_accuracy", gauge, "Accuracy of a variant; its service label is SERVICE/VARIANT.", []string{"service"},
		func(e *emitter, s *status.Service) {
			// A service without variants has no accuracy.
			if s.Accuracy > 0 {
				e.value(s.Accuracy, s.Name)
			}
		}),
	ofService("overlapd_service_target_seconds", gauge, "QoS target of the service.",
		func(s *status.Service) float64 { return s.TargetMS / 1e3 }),

	ofService("overlapd_queries_accepted_total", counter, "Queries that entered the queue.",
		func(s *status.Service) uint64 { return s.Arrived }),
	byReason("overlapd_queries_refused_total", "Queries that were valid but rejected before they were queued, by reason.",
		func(s *status.Service) map[string]uint64 { return s.Refused }, overlap.ReasonQueueFull, overlap.ReasonDeadlinePassed, overlap.ReasonDraining),
	ofService("overlapd_queries_finished_total", counter, "Queries that produced outputs, in time or late.",
		func(s *status.Service) uint64 { return s.Finished }),
	ofService("overlapd_queries_late_total", counter, "Queries that finished after their deadline.",
		func(s *status.Service) uint64 { return s.Late }),
	byReason("overlapd_queries_dropped_total", "Accepted queries that were dropped for lack of time, by reason.",
		func(s *status.Service) map[string]uint64 { return s.Dropped }, overlap.ReasonDeadlinePassed, overlap.ReasonCannotFinish),
	byReason("overlapd_queries_failed_total", "Accepted queries that failed, by reason.",
		func(s *status.Service) map[string]uint64 { return s.Failed }, overlap.ReasonWorkerLost, overlap.ReasonModelFailed),
	ofService("overlapd_queries_cancelled_total", counter, "Queries whose client disconnected.",
		func(s *status.Service) uint64 { return s.Cancelled }),
	ofService("overlapd_deadline_misses_total", counter,
		"Accepted queries without outputs at their deadline: late, dropped or failed.", misses),

	histogramOfService("overlapd_query_latency_seconds", "Latency of finished queries, from arrival to outputs.",
		func(q *queries) *distribution { return &q.latency }),
	histogramOfService("overlapd_query_latency_target_ratio", "Latency of finished queries divided by the QoS target.",
		func(q *queries) *distribution { return &q.target }),
	histogramOfService("overlapd_query_queue_seconds", "Time that finished queries were queued before their first span.",
		func(q *queries) *distribution { return &q.queue }),

	ofService("overlapd_queue_length", gauge, "Queries queued before their first span.",
		func(s *status.Service) int { return s.Queued }),
	ofService("overlapd_queue_limit", gauge, "Queries that may be queued; further ones are rejected.",
		func(s *status.Service) int { return s.QueueLimit }),
	ofService("overlapd_queue_oldest_age_seconds", gauge, "Age of the oldest queued query; 0 if the queue is empty.",
		func(s *status.Service) float64 { return s.OldestAge.Seconds() }),
	ofService("overlapd_queue_postponed", gauge, "Queued queries that the last decision postponed for lack of time.",
		func(s *status.Service) int { return s.Postponed }),

	ofService("overlapd_batches_total", counter, "Batches formed.",
		func(s *status.Service) uint64 { return s.Batches }),
	ofService("overlapd_batches_paused", gauge, "Batches paused between two operators.",
		func(s *status.Service) int { return s.Paused }),
	ofService("overlapd_moves_total", counter, "Batches that moved to another device, as a pipeline plan says.",
		func(s *status.Service) uint64 { return s.Moves }),
	ofService("overlapd_moves_lost_total", counter, "Batches lost while moving to another device; their queries ran again.",
		func(s *status.Service) uint64 { return s.MovesLost }),
	ofService("overlapd_queries_merged_total", counter, "Queries that started in a batch with others (dynamic batching).",
		func(s *status.Service) uint64 { return s.Merged }),
	ofService("overlapd_queries_retried_total", counter, "Times that a query was queued again because its worker was lost or its batch failed.",
		func(s *status.Service) uint64 { return s.Retried }),

	ofService("overlapd_spans_total", counter, "Spans that ran, completed or stopped.",
		func(s *status.Service) uint64 { return s.Requests.Spans.Count }),
	ofService("overlapd_span_engine_seconds_total", counter, "Time that spans spent in the engine, by the host's clock.",
		func(s *status.Service) float64 { return s.EngineSeconds }),
	perService("overlapd_span_device_seconds_total", counter,
		"Time that the device took for spans, by its own clock, if it has one; the rest of the engine time is copies, launches and wake-ups.",
		[]string{"service"}, func(e *emitter, s *status.Service) {
			// Devices without a clock of their own have no such series.
			if s.DeviceSeconds > 0 {
				e.value(s.DeviceSeconds, s.Name)
			}
		}),

	ofService("overlapd_overruns_total", counter, "Spans detached from their round because they overran.",
		func(s *status.Service) uint64 { return s.Overruns }),
	ofService("overlapd_worker_restarts_total", counter, "Worker restarts.",
		func(s *status.Service) uint64 { return s.Restarts }),
	ofService("overlapd_worker_resident_bytes", gauge, "Resident memory of the worker process.",
		func(s *status.Service) int64 { return s.ResidentBytes }),
	ofService("overlapd_intermediate_bytes", gauge, "Memory that batches hold of the budget intermediate_bytes.",
		func(s *status.Service) int64 { return s.IntermediateBytes }),
	ofService("overlapd_input_bytes", gauge, "Inputs of unanswered queries in shared memory.",
		func(s *status.Service) int64 { return s.InputBytes }),
}

// misses returns the number of queries that had no outputs at their deadline.
func misses(s *status.Service) uint64 {
	n := s.Late
	for _, counts := range []map[string]uint64{s.Dropped, s.Failed} {
		for _, of := range counts {
			n += of
		}
	}
	return n
}

// loadFamilies are the signals for autoscaling.
var loadFamilies = []family{
	whole("overlapd_devices", gauge, "Devices of the daemon.", func(s *scrape) int { return len(s.Status.Load.Devices) }),
	whole("overlapd_devices_demanded", gauge, "Devices that the load of the last minute demands.",
		func(s *scrape) float64 { return s.Status.Load.DevicesDemanded }),
	whole("overlapd_bad_ratio", gauge, "Fraction of the last minute's queries that were late, dropped, or rejected for lack of room or time; best-effort services excluded.",
		func(s *scrape) float64 { return s.Status.Load.BadRate }),
	{
		name: "overlapd_device_idle_ratio", kind: gauge, help: "Fraction of the last minute in which no round ran on the device.", labels: []string{"device"},
		values: func(s *scrape, e *emitter) {
			for i := range s.Status.Load.Devices {
				e.value(s.Status.Load.Devices[i].Idle, s.Status.Load.Devices[i].Name)
			}
		},
	},
	histogramOf("overlapd_idle_before_round_seconds", "Idle time of a device before a round.", func(g *groups) *distribution { return &g.idle }),
	ofLoad("overlapd_service_headroom_ratio", gauge, "Fraction of the allowed time that at least 99 % of the last minute's queries had left.",
		func(l status.ServiceLoad) float64 { return l.Headroom }),
	ofLoad("overlapd_service_bad_ratio", gauge, "Fraction of the last minute's queries that were late, dropped, or rejected for lack of room or time.",
		func(l status.ServiceLoad) float64 { return l.BadRate }),
	ofLoad("overlapd_service_device_seconds_total", counter, "Device time used by the service. A round's time is divided among its spans, so the services' sum is overlapd_device_busy_seconds_total.",
		func(l status.ServiceLoad) float64 { return l.DeviceTotal.Seconds() }),
}

// ofLoad returns a metric with a value for each service whose load is known.
func ofLoad(name string, k kind, help string, value func(status.ServiceLoad) float64) family {
	return family{name: name, kind: k, help: help, labels: []string{"service"}, values: func(s *scrape, e *emitter) {
		// The status names the services that exist, the load may have others for a moment.
		for _, of := range s.services() {
			if l, there := s.Status.Load.Services[of.Name]; there {
				e.value(value(l), of.Name)
			}
		}
	}}
}

// schedulerFamilies describe rounds and the scheduler goroutine.
var schedulerFamilies = []family{
	{
		name: "overlapd_info", kind: gauge, help: "Always 1; the version of overlapd and the scheduling policy.",
		labels: []string{"version", "policy"},
		values: func(s *scrape, e *emitter) { e.value(1, s.version, s.policy) },
	},
	ofDevice("overlapd_rounds_total", "Rounds started.", func(d *status.Device) uint64 { return d.Rounds }),
	ofDevice("overlapd_device_busy_seconds_total", "Total time of rounds; its rate is the device's utilization.",
		func(d *status.Device) float64 { return d.BusySeconds }),
	whole("overlapd_host_late_seconds_total", counter, "The part of overlapd_device_busy_seconds_total by which this host noticed the end of rounds late, on emulated devices.",
		func(s *scrape) float64 { return s.Status.HostLateSeconds }),
	histogramOf("overlapd_round_seconds", "Time of a round.", func(g *groups) *distribution { return &g.round }),
	histogramOf("overlapd_move_seconds", "Time that a batch took to move to another device.", func(g *groups) *distribution { return &g.move }),
	histogramOf("overlapd_group_spans", "Spans in a group.", func(g *groups) *distribution { return &g.size }),
	histogramOf("overlapd_dispatch_headroom_seconds", "Time from the start of a group to its earliest deadline; 0 if that had passed.",
		func(g *groups) *distribution { return &g.headroom }),

	whole("overlapd_overlap_solo_seconds_total", counter, "Sum of the isolated latencies of spans in groups of several.",
		func(s *scrape) float64 { return s.record.soloTime.Seconds() }),
	whole("overlapd_overlap_gained_seconds_total", counter, "Device time saved where groups of several spans were faster than their spans one after another.",
		func(s *scrape) float64 { return s.record.gained.Seconds() }),
	whole("overlapd_overlap_lost_seconds_total", counter, "Device time lost where groups of several spans were slower than their spans one after another.",
		func(s *scrape) float64 { return s.record.lost.Seconds() }),
	whole("overlapd_merge_gained_seconds_total", counter, "Device time saved by dynamic batching: how much faster batches were than their queries one after another.",
		func(s *scrape) float64 { return s.record.merged.Seconds() }),

	whole("overlapd_plans_made_total", counter, "Rounds planned while the previous one ran.", func(s *scrape) uint64 { return s.Status.Plans.Made }),
	whole("overlapd_plans_kept_total", counter, "Plans that were executed.", func(s *scrape) uint64 { return s.Status.Plans.Kept }),
	whole("overlapd_plans_overturned_total", counter, "Plans that were discarded because of a new event or because they no longer fit.",
		func(s *scrape) uint64 { return s.Status.Plans.Overturned }),

	whole("overlapd_scheduler_busy_seconds_total", counter, "Time that the scheduler goroutine worked; its rate is its saturation, at most 1.",
		func(s *scrape) float64 { return s.record.busy.Seconds() }),
	whole("overlapd_scheduler_turns_total", counter, "Wake-ups of the scheduler goroutine.", func(s *scrape) uint64 { return s.record.turns }),
	whole("overlapd_scheduler_inbox_length", gauge, "Messages queued for the scheduler goroutine.", func(s *scrape) int { return s.Status.Inbox }),
	whole("overlapd_scheduler_inbox_limit", gauge, "Messages that may be queued; further queries are rejected.", func(s *scrape) int { return s.Status.InboxLimit }),
	whole("overlapd_scheduler_beat_age_seconds", gauge, "Time since the scheduler goroutine last completed a turn; it wakes at least once a second.",
		func(s *scrape) float64 { return s.Status.BeatAge.Seconds() }),
	whole("overlapd_scheduler_snapshot_age_seconds", gauge, "Age of the scheduler snapshot; each scrape requests a new one.",
		func(s *scrape) float64 { return s.Status.Age.Seconds() }),
}

// predictionFamilies describe the accuracy of predictions.
var predictionFamilies = []family{
	whole("overlapd_predictor_serving", gauge, "1 if a network predicts groups of several spans, 0 if they are assumed to take as long as their spans one after another.",
		func(s *scrape) int {
			// With several kinds of devices, each must have a predictor.
			return whether(!slices.ContainsFunc(s.predictors(), func(p *status.Predictor) bool { return p.File == nil }))
		}),
	histogramOf("overlapd_group_prediction_ratio", "Measured/predicted time of groups of several spans.", func(g *groups) *distribution { return &g.groupRatio }),
	histogramOf("overlapd_group_prediction_error_ratio", "Prediction error for groups of several spans: |predicted/measured - 1|.",
		func(g *groups) *distribution { return &g.groupError }),
	histogramOf("overlapd_solo_prediction_ratio", "Measured/predicted time of spans that ran alone.", func(g *groups) *distribution { return &g.soloRatio }),
	histogramOf("overlapd_prediction_margin_ratio", "Margin of a group: the bound compared with its deadlines, divided by the predicted time.",
		func(g *groups) *distribution { return &g.margin }),
	whole("overlapd_prediction_bound_exceeded_total", counter, "Rounds that took longer than their bound; the design value is one in a hundred.",
		func(s *scrape) uint64 { return s.record.exceeded }),
	{
		name: "overlapd_predictor_fallbacks_total", kind: counter, help: "Predictions that the network could not make, by reason.",
		labels: []string{"reason"},
		values: func(s *scrape, e *emitter) {
			sums := map[string]uint64{}
			for _, p := range s.predictors() {
				for reason, n := range p.Fallbacks {
					sums[reason] += n
				}
			}
			// Reasons have spaces, which are unusual in label values.
			for reason, n := range sums {
				e.value(float64(n), strings.ReplaceAll(reason, " ", "_"))
			}
		},
	},
	whole("overlapd_predictor_unknown_total", counter, "Predictions for groups about which nothing was known.",
		func(s *scrape) (sum uint64) {
			for _, p := range s.predictors() {
				sum += p.Unknown
			}
			return sum
		}),
}

// tracingFamilies describe traces of queries. They are 0 without tracing.
var tracingFamilies = []family{
	whole("overlapd_traced_queries_total", counter, "Queries traced.", func(s *scrape) uint64 { return s.Traces.Queries }),
	whole("overlapd_traced_queries_dropped_total", counter, "Traced queries discarded because the collector could not keep up.",
		func(s *scrape) uint64 { return s.Traces.Dropped }),
	whole("overlapd_trace_spans_exported_total", counter, "Trace spans accepted by the collector.", func(s *scrape) uint64 { return s.Traces.Exported }),
	whole("overlapd_trace_spans_failed_total", counter, "Trace spans that could not be sent to the collector.", func(s *scrape) uint64 { return s.Traces.Failed }),
}

// memoryFamilies describe the memory of models. They are 0 if all models are loaded at the start.
var memoryFamilies = []family{
	whole("overlapd_models_memory_bytes", gauge, "Memory of the models that are loaded.", func(s *scrape) int64 { return s.memory().UsedBytes }),
	whole("overlapd_models_memory_limit_bytes", gauge, "Memory that models may take together.", func(s *scrape) int64 { return s.memory().LimitBytes }),
	whole("overlapd_model_loads_total", counter, "Models loaded because a query or a request asked for them.", func(s *scrape) uint64 { return s.memory().Loads }),
	whole("overlapd_model_evictions_total", counter, "Models evicted for others, or unloaded by request.", func(s *scrape) uint64 { return s.memory().Evictions }),
	whole("overlapd_model_load_failures_total", counter, "Loads of models that failed.", func(s *scrape) uint64 { return s.memory().Failures }),
}

// storageFamilies describe what cannot be stored. None of it stops the daemon from serving.
var storageFamilies = []family{
	whole("overlapd_state_file_lost", gauge, "1 if the state file was damaged or replaced while in use: nothing is stored until the daemon restarts.",
		func(s *scrape) int { return whether(s.Storage.StateLost) }),
	whole("overlapd_state_file_set_aside", gauge, "1 if the state file was damaged at startup: it is kept under another name, and everything is measured again.",
		func(s *scrape) int { return whether(s.Storage.StateSetAside) }),
	whole("overlapd_decision_log_stopped", gauge, "1 while the decision log cannot be written.", func(s *scrape) int { return whether(s.Storage.LogStopped) }),
	whole("overlapd_decisions_lost_total", counter, "Scheduler events missing from the decision log because the disk was too slow or full.",
		func(s *scrape) uint64 { return s.Storage.DecisionsLost }),
}

// whether returns 1 for true and 0 for false.
func whether(b bool) int {
	if b {
		return 1
	}
	return 0
}

// gpuFamilies have Triton's names. There are no values without a GPU, nor for what a GPU
// does not report, such as the utilization of a MIG device.
var gpuFamilies = []family{
	ofGPU("nv_gpu_utilization", "Fraction of the driver's last sampling period in which a kernel ran, 0 to 1.",
		func(g *cuda.Sample) (float64, bool) {
			return float64(g.Utilization.Value.GPU) / 100, g.Utilization.Known
		}),
	ofGPU("nv_gpu_memory_total_bytes", "Memory of the GPU, in bytes.",
		func(g *cuda.Sample) (float64, bool) { return float64(g.Memory.Value.Total), g.Memory.Known }),
	ofGPU("nv_gpu_memory_used_bytes", "Used memory of the GPU, in bytes.",
		func(g *cuda.Sample) (float64, bool) { return float64(g.Memory.Value.Used), g.Memory.Known }),
	ofGPU("nv_gpu_power_usage", "Power draw of the GPU in watts; for a MIG device that of the whole GPU.",
		func(g *cuda.Sample) (float64, bool) { return g.Power.Value, g.Power.Known }),
	ofGPU("nv_gpu_power_limit", "Power limit of the GPU, in watts.",
		func(g *cuda.Sample) (float64, bool) { return g.PowerLimit.Value, g.PowerLimit.Known }),
}

// ofGPU returns a gauge with a value for each GPU that reports it. It has a single label
// because perf_analyzer expects exactly that.
func ofGPU(name, help string, value func(*cuda.Sample) (float64, bool)) family {
	return family{name: name, kind: gauge, help: help, labels: []string{"gpu_uuid"}, values: func(s *scrape, e *emitter) {
		for _, part := range s.Status.GPU {
			// There was no sample yet, or taking it failed.
			if part.Sample == nil {
				continue
			}
			if v, known := value(part.Sample); known {
				e.value(v, part.Sample.UUID)
			}
		}
	}}
}

// Scrape is the state of a daemon at one moment, besides what its Recorder has counted.
// Counters start with the daemon.
type Scrape struct {
	Status *status.Status

	// Traces counts the traced queries, those discarded, and the trace spans that were
	// exported or failed.
	Traces struct{ Queries, Dropped, Exported, Failed uint64 }

	// Storage says what cannot be stored: measurements once the state file is lost, and
	// decisions while the log is stopped.
	Storage struct {
		StateLost, StateSetAside, LogStopped bool
		DecisionsLost                        uint64
	}
}

// scrape is everything that the families read.
type scrape struct {
	Scrape
	version, policy string
	record          record
}

// services returns pointers to the services, which are large.
func (s *scrape) services() (all []*status.Service) {
	for n := range s.Status.Services {
		all = append(all, &s.Status.Services[n])
	}
	return all
}

// devices returns the devices of the pool, or the only device in the same form.
func (s *scrape) devices() []status.Device {
	if len(s.Status.Pool) > 0 {
		return s.Status.Pool
	}
	return []status.Device{{Rounds: s.Status.Rounds, BusySeconds: s.Status.BusySeconds}}
}

// memory returns the memory of models.
func (s *scrape) memory() status.Memory {
	if m := s.Status.Memory; m != nil {
		return *m
	}
	return status.Memory{}
}

// predictors returns the predictor of each kind of device.
func (s *scrape) predictors() []*status.Predictor {
	all := []*status.Predictor{&s.Status.Predictor}
	for i := range s.Status.Pool {
		if p := s.Status.Pool[i].Predictor; p != nil {
			all = append(all, p)
		}
	}
	return all
}

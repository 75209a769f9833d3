package metrics

import "time"

// modelVersion is the version of every model.
const modelVersion = "1"

// tritonFamilies are named as Triton names them, with its labels and units.
var tritonFamilies = []family{
	ofModel("nv_inference_request_success", "Requests that were answered with outputs.",
		func(s *Service) float64 { return float64(s.Requests.Success) }),
	{
		name: "nv_inference_request_failure", kind: counter,
		help:   "Requests that were accepted and answered with an error, by Triton's reasons: REJECTED, CANCELED, BACKEND, OTHER.",
		labels: []string{"model", "version", "reason"},
		values: func(s *Snapshot, e *emitter) {
			for i := range s.Services {
				for _, c := range s.Services[i].Requests.Failure {
					e.value(float64(c.N), s.Services[i].Name, modelVersion, c.Reason)
				}
			}
		},
	},
	ofModel("nv_inference_count", "Queries that were answered with outputs; one of batch size n counts n.",
		func(s *Service) float64 { return float64(s.Requests.Queries) }),
	ofModel("nv_inference_exec_count", "Batches that ran to their end.",
		func(s *Service) float64 { return float64(s.Requests.Executions) }),
	ofModel("nv_inference_request_duration_us", "Time that the successful requests took together, in microseconds.",
		func(s *Service) float64 { return micros(s.Requests.Request) }),
	ofModel("nv_inference_queue_duration_us", "Time that the successful requests waited for their first span, in microseconds.",
		func(s *Service) float64 { return micros(s.Requests.Queue) }),
	ofModel("nv_inference_compute_input_duration_us", "Time for gathering the inputs of the successful requests, in microseconds.",
		func(s *Service) float64 { return micros(s.Requests.ComputeInput) }),
	ofModel("nv_inference_compute_infer_duration_us", "Time in which spans of the successful requests ran, in microseconds.",
		func(s *Service) float64 { return micros(s.Requests.ComputeInfer) }),
	ofModel("nv_inference_compute_output_duration_us", "Time for splitting the outputs of the successful requests, in microseconds.",
		func(s *Service) float64 { return micros(s.Requests.ComputeOutput) }),
	{
		name: "nv_inference_pending_request_count", kind: gauge, help: "Requests that wait for their first span, now.",
		labels: []string{"model", "version"},
		values: func(s *Snapshot, e *emitter) {
			for i := range s.Services {
				e.value(float64(s.Services[i].Queued), s.Services[i].Name, modelVersion)
			}
		},
	},
}

// ofModel is a counter with a value for each service, by the labels of Triton.
func ofModel(name, help string, value func(*Service) float64) family {
	return family{name: name, kind: counter, help: help, labels: []string{"model", "version"}, values: func(s *Snapshot, e *emitter) {
		for i := range s.Services {
			e.value(value(&s.Services[i]), s.Services[i].Name, modelVersion)
		}
	}}
}

func micros(d time.Duration) float64 { return float64(d / time.Microsecond) }

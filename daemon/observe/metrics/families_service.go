package metrics

// serviceFamilies tell what became of the queries of each service.
var serviceFamilies = []family{
	ofService("overlapd_service_ready", gauge, "1 if the service can answer queries, else 0.", func(s *Service) float64 {
		if s.Ready {
			return 1
		}
		return 0
	}),
	ofService("overlapd_service_target_seconds", gauge, "QoS target of the service.",
		func(s *Service) float64 { return s.Target.Seconds() }),

	ofService("overlapd_queries_accepted_total", counter, "Queries that were queued.",
		func(s *Service) uint64 { return s.Accepted }),
	byReason("overlapd_queries_refused_total", "Queries that the scheduler did not queue, by reason.",
		func(s *Service) []Count { return s.Refused }),
	ofService("overlapd_queries_finished_total", counter, "Queries whose outputs were made, in time or late.",
		func(s *Service) uint64 { return s.Finished }),
	ofService("overlapd_queries_late_total", counter, "Queries that finished after their deadline.",
		func(s *Service) uint64 { return s.Late }),
	byReason("overlapd_queries_dropped_total", "Queries that were accepted and not run to their end for lack of time, by reason.",
		func(s *Service) []Count { return s.Dropped }),
	byReason("overlapd_queries_failed_total", "Queries that were accepted and failed, by reason.",
		func(s *Service) []Count { return s.Failed }),
	ofService("overlapd_queries_cancelled_total", counter, "Queries whose client left.",
		func(s *Service) uint64 { return s.Cancelled }),
	ofService("overlapd_deadline_misses_total", counter,
		"Accepted queries without outputs at their deadline: those that were late, were dropped, or failed.", misses),

	histogramOfService("overlapd_query_latency_seconds", "Latency of the finished queries, from arrival to their outputs.",
		func(q *queries) *Histogram { return &q.latency }),
	histogramOfService("overlapd_query_latency_target_ratio", "Latency of the finished queries as a part of the QoS target.",
		func(q *queries) *Histogram { return &q.target }),
	histogramOfService("overlapd_query_queue_seconds", "Time that the finished queries waited for their first span.",
		func(q *queries) *Histogram { return &q.queue }),

	ofService("overlapd_queue_length", gauge, "Queries that wait for their first span, now.",
		func(s *Service) int { return s.Queued }),
	ofService("overlapd_queue_limit", gauge, "Queries that may wait; one more is refused.",
		func(s *Service) int { return s.QueueLimit }),
	ofService("overlapd_queue_oldest_age_seconds", gauge, "Age of the query that has waited longest, now; 0 if none waits.",
		func(s *Service) float64 { return s.OldestAge.Seconds() }),
	ofService("overlapd_queue_postponed", gauge, "Waiting queries that the last decision found no time for, now.",
		func(s *Service) int { return s.Postponed }),

	ofService("overlapd_batches_total", counter, "Batches that were formed.",
		func(s *Service) uint64 { return s.Batches }),
	ofService("overlapd_batches_paused", gauge, "Batches that stand between two operators, now.",
		func(s *Service) int { return s.Paused }),
	ofService("overlapd_queries_merged_total", counter, "Queries that started in a batch with others.",
		func(s *Service) uint64 { return s.Merged }),
	ofService("overlapd_queries_retried_total", counter, "Times that a query was queued again because its worker was lost.",
		func(s *Service) uint64 { return s.Retried }),

	ofService("overlapd_spans_total", counter, "Spans that ran, to their end or until they were stopped.",
		func(s *Service) uint64 { return s.Clocks.Spans }),
	ofService("overlapd_span_engine_seconds_total", counter, "Time that spans were in the engine, by the host's clock.",
		func(s *Service) float64 { return s.Clocks.Engine.Seconds() }),
	onDevice("overlapd_span_device_seconds_total",
		"Time that the device took for spans, by its own clock; the rest of the engine's went into copies, launches and waking up. Only where there is such a clock.",
		func(c *Clocks) float64 { return c.Device.Seconds() }),

	ofService("overlapd_worker_restarts_total", counter, "Times that the worker was started again.",
		func(s *Service) uint64 { return s.Restarts }),
	ofService("overlapd_worker_resident_bytes", gauge, "Memory of the worker's process, now.",
		func(s *Service) int64 { return s.ResidentBytes }),
	ofService("overlapd_intermediate_bytes", gauge, "Intermediates of paused batches, as the worker last reported.",
		func(s *Service) int64 { return s.IntermediateBytes }),
	ofService("overlapd_input_bytes", gauge, "Inputs of queries that are not answered, in shared memory, now.",
		func(s *Service) int64 { return s.InputBytes }),
}

// onDevice is a counter of each service that runs on a device with a clock.
func onDevice(name, help string, value func(*Clocks) float64) family {
	return family{name: name, kind: counter, help: help, labels: []string{"service"}, values: func(s *Snapshot, e *emitter) {
		for i := range s.Services {
			if c := &s.Services[i].Clocks; c.Device > 0 {
				e.value(value(c), s.Services[i].Name)
			}
		}
	}}
}

func misses(s *Service) uint64 {
	n := s.Late
	for _, counts := range [][]Count{s.Dropped, s.Failed} {
		for _, c := range counts {
			n += c.N
		}
	}
	return n
}

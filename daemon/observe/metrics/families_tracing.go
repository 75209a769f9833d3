package metrics

// tracingFamilies tell of the traces of queries. Without tracing they are 0.
var tracingFamilies = []family{
	whole("overlapd_traced_queries_total", counter, "Queries that were traced.", func(s *Snapshot) uint64 { return s.Traces.Queries }),
	whole("overlapd_traced_queries_dropped_total", counter, "Traced queries that were left out because the collector takes less than is traced.",
		func(s *Snapshot) uint64 { return s.Traces.Dropped }),
	whole("overlapd_trace_spans_exported_total", counter, "Spans that the collector has taken.", func(s *Snapshot) uint64 { return s.Traces.Exported }),
	whole("overlapd_trace_spans_failed_total", counter, "Spans that could not be sent to the collector.", func(s *Snapshot) uint64 { return s.Traces.Failed }),
}

package otlp

import (
	"context"
	"math/rand/v2"
	"strings"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
)

// maxStateBytes is how long a tracestate may be that is passed on. W3C asks for
// 512 bytes at least.
const maxStateBytes = 4096

// parentOf returns the context of a request. What is malformed, or there more than
// once, is as if it were not there.
func parentOf(p *tracing.Parent) trace.SpanContext {
	if len(p.Traceparent) != 1 {
		return trace.SpanContext{}
	}
	c := propagation.MapCarrier{"traceparent": p.Traceparent[0]}
	if state := strings.Join(p.Tracestate, ","); state != "" && len(state) <= maxStateBytes {
		c["tracestate"] = state
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), c))
}

// sampled reports whether a query is traced: as its parent is, if it has one.
func sampled(parent trace.SpanContext, ratio float64) bool {
	if parent.IsValid() {
		return parent.IsSampled()
	}
	return ratio > 0 && rand.Float64() < ratio
}

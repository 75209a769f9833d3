package otlp

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/overlapd/overlapd/daemon/observe/tracing"
)

// statusLost is the status of a run whose worker was lost.
const statusLost = "lost"

// scope is the instrumentation scope of the trace spans.
const scope = "github.com/overlapd/overlapd/daemon/observe/tracing"

// spans converts queries to trace spans.
type spans struct{ trace.Tracer }

// emit creates the trace spans of a query: one for the request, with children for reading,
// queueing, running and encoding.
func (t spans) emit(q *tracing.Query) {
	ctx := context.Background()
	if parent := parentOf(&q.Parent); parent.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, parent)
	}
	ctx, root := t.Start(ctx, nameOf(q), trace.WithTimestamp(q.Began), trace.WithSpanKind(trace.SpanKindServer))
	root.SetAttributes(requestAttributes(q)...)
	root.SetAttributes(queryAttributes(q)...)
	if q.Status.Ours {
		root.SetStatus(codes.Error, clean(q.Status.Message))
	}
	if q.Arrival.After(q.Began) {
		t.child(ctx, "read", q.Began, within(q, q.Arrival))
	}
	t.emitRuns(ctx, root, q)
	if !q.Encoding.IsZero() {
		t.child(ctx, "encode", within(q, q.Encoding), q.Ended)
	}
	root.End(trace.WithTimestamp(q.Ended))
}

// child creates a child span without attributes.
func (t spans) child(ctx context.Context, name string, from, to time.Time) {
	_, s := t.Start(ctx, name, trace.WithTimestamp(from))
	s.End(trace.WithTimestamp(to))
}

// emitRuns creates the spans for queueing and running, and events between them: a pause,
// during which rounds ran without the started batch; a move to another device; and a retry
// after the worker was lost.
func (t spans) emitRuns(ctx context.Context, root trace.Span, q *tracing.Query) {
	if q.Arrival.IsZero() || !q.Answered && len(q.Runs) == 0 {
		return // it was rejected before it was queued
	}
	answered := q.Ended
	if q.Answered {
		answered = at(q, q.Answer.At)
	}
	waits := within(q, q.Arrival)
	waiting := true
	for i := range q.Runs {
		r := &q.Runs[i]
		began := at(q, r.Began)
		if waiting {
			t.child(ctx, "queue", waits, began)
		} else if before := &q.Runs[i-1]; r.Device != before.Device {
			root.AddEvent("move", trace.WithTimestamp(at(q, before.Ended)), trace.WithAttributes(
				attribute.Int("overlapd.operator", before.Reached), attribute.String("overlapd.from", before.Device), attribute.String("overlapd.to", r.Device)))
		} else if r.Round > before.Round+1 {
			root.AddEvent("pause", trace.WithTimestamp(at(q, before.Ended)), trace.WithAttributes(
				attribute.Int("overlapd.operator", before.Reached), millis("overlapd.pause_ms", r.Began-before.Ended)))
		}
		t.emitRun(ctx, q, r, answered)
		if waiting = r.Status == statusLost; waiting {
			waits = at(q, r.Ended)
			if i+1 < len(q.Runs) {
				root.AddEvent("retry", trace.WithTimestamp(waits), trace.WithAttributes(attribute.Int64("overlapd.round", int64(r.Round))))
			}
		}
	}
	if waiting && answered.After(waits) {
		t.child(ctx, "queue", waits, answered)
	}
}

// emitRun creates the span of one operator range. It ends when the range did, which may be
// before the end of its round.
func (t spans) emitRun(ctx context.Context, q *tracing.Query, r *tracing.Run, answered time.Time) {
	end := answered
	if r.Ended > 0 {
		end = at(q, r.Ended)
		if own := at(q, r.Began+r.Took); r.Took > 0 && own.Before(end) {
			end = own
		}
	}
	_, s := t.Start(ctx, "run", trace.WithTimestamp(at(q, r.Began)), trace.WithAttributes(runAttributes(r)...))
	if r.Status == statusLost || r.Status == "failed" {
		s.SetStatus(codes.Error, "its worker: "+r.Status)
	}
	s.End(trace.WithTimestamp(end))
}

// nameOf returns the name of the server span by OpenTelemetry's conventions: the operation
// without variable parts.
func nameOf(q *tracing.Query) string {
	if q.Request.Protocol == tracing.HTTP {
		return q.Request.Method + " " + q.Request.Route
	}
	return q.Request.Method
}

// maxTextBytes limits the length of a text that comes from a client.
const maxTextBytes = 256

// clean returns a text from a client in the form that a trace span can carry: valid UTF-8
// of limited length.
func clean(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxTextBytes)], "\uFFFD") }

// given returns the attributes that are neither empty nor 0.
func given(list ...attribute.KeyValue) []attribute.KeyValue {
	return slices.DeleteFunc(list, func(a attribute.KeyValue) bool {
		return a.Value == attribute.StringValue("") || a.Value == attribute.IntValue(0)
	})
}

// requestAttributes returns the attributes that OpenTelemetry's conventions require of a
// server.
func requestAttributes(q *tracing.Query) []attribute.KeyValue {
	r, s := &q.Request, &q.Status
	a := given(
		semconv.ServerAddress(clean(r.Server)), semconv.ServerPort(r.Port), semconv.ClientAddress(clean(r.Client)),
		semconv.UserAgentOriginal(clean(r.UserAgent)), semconv.ErrorTypeKey.String(clean(s.Reason)), semconv.NetworkProtocolVersion(r.Version),
	)
	if r.Protocol != tracing.HTTP {
		return append(a, semconv.RPCSystemNameGRPC, semconv.RPCMethod(r.Method), semconv.RPCResponseStatusCode(s.GRPC))
	}
	return append(a, semconv.HTTPRequestMethodKey.String(r.Method), semconv.HTTPRoute(r.Route), semconv.URLPath(clean(r.Path)),
		semconv.URLScheme(r.Scheme), semconv.HTTPResponseStatusCode(s.Code))
}

// queryAttributes returns overlapd's own attributes, of the query and of the last batch
// that it ran in.
func queryAttributes(q *tracing.Query) []attribute.KeyValue {
	w := &q.Answer
	a := append(given(
		attribute.String("overlapd.device", q.Device), attribute.String("overlapd.query.id", clean(q.ID)), attribute.Int64("overlapd.query", int64(q.Number)),
		attribute.Int("overlapd.runs_left_out", q.LeftOut), attribute.Int("overlapd.retries", w.Retries),
	), attribute.String("overlapd.service", clean(q.Service)))
	if q.Size > 0 {
		a = append(a, attribute.Int("overlapd.size", q.Size), attribute.Int("overlapd.seq_len", q.SeqLen), attribute.Int("overlapd.priority", q.Priority))
	}
	if !q.Deadline.IsZero() {
		a = append(a, millis("overlapd.deadline_ms", q.Deadline.Sub(q.Arrival)), attribute.Bool("overlapd.late", q.Ended.After(q.Deadline)))
	}
	if q.Answered {
		a = append(a, attribute.String("overlapd.result", w.Result), millis("overlapd.queue_ms", w.Queue), millis("overlapd.run_ms", w.Run))
	}
	if q.Answered && w.Reason != "none" {
		a = append(a, attribute.String("overlapd.reason", w.Reason))
	}
	if len(q.Runs) == 0 {
		return a
	}
	var predicted, measured time.Duration
	for i := range q.Runs {
		predicted += q.Runs[i].Predicted
		measured += q.Runs[i].RoundTook
	}
	last := &q.Runs[len(q.Runs)-1]
	return append(a,
		attribute.Int64("overlapd.batch", int64(last.Batch)), attribute.Int("overlapd.batch.size", last.BatchSize),
		attribute.Int("overlapd.rounds", len(q.Runs)+q.LeftOut),
		millis("overlapd.predicted_ms", predicted), millis("overlapd.measured_ms", measured))
}

// runAttributes returns the attributes of an operator range and its round.
func runAttributes(r *tracing.Run) []attribute.KeyValue {
	members := make([]string, len(r.Group))
	for i, m := range r.Group {
		members[i] = fmt.Sprintf("%s[%d,%d)", m.Service, m.Start, m.End)
	}
	a := []attribute.KeyValue{
		attribute.Int64("overlapd.round", int64(r.Round)), attribute.Int64("overlapd.batch", int64(r.Batch)), attribute.Int("overlapd.batch.size", r.BatchSize),
		attribute.Int("overlapd.span.start", r.Start), attribute.Int("overlapd.span.end", r.End), attribute.Int("overlapd.span.of", r.Of),
		attribute.StringSlice("overlapd.group", members), attribute.Bool("overlapd.planned", r.Planned),
		millis("overlapd.predicted_ms", r.Predicted), millis("overlapd.bound_ms", r.Bound),
	}
	if r.Device != "" {
		a = append(a, attribute.String("overlapd.device", r.Device))
	}
	if r.Status != "" {
		a = append(a, attribute.String("overlapd.span.status", r.Status), attribute.Int("overlapd.span.reached", r.Reached),
			millis("overlapd.took_ms", r.Took), millis("overlapd.measured_ms", r.RoundTook))
	}
	return a
}

// millis returns an attribute in milliseconds.
func millis(key string, d time.Duration) attribute.KeyValue {
	return attribute.Float64(key, float64(d)/float64(time.Millisecond))
}

// at converts a time of the scheduler, limited to the duration of the query.
func at(q *tracing.Query, since time.Duration) time.Time { return within(q, q.Epoch.Add(since)) }

// within limits a time to the duration of the query, because a child span must not exceed
// its parent. The clocks of the codec and the scheduler may differ slightly.
func within(q *tracing.Query, t time.Time) time.Time {
	if t.Before(q.Began) {
		return q.Began
	}
	if t.After(q.Ended) {
		return q.Ended
	}
	return t
}

// maxStateBytes is the longest tracestate that is passed on. W3C Trace Context requires
// support for 512 bytes.
const maxStateBytes = 4096

// parentOf returns the trace context of a request. A malformed or repeated header is
// ignored.
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

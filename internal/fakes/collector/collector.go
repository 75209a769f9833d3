// Package collector is a collector of spans for tests of any package: a
// [Collector] listens on loopback, takes what OTLP over HTTP sends, and hands it
// out. No program links it.
package collector

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// Collector is one that listens at an URL, which a tracer's endpoint is to be.
type Collector struct {
	URL string

	mu struct {
		sync.Mutex
		spans []Span

		// The next refusals requests get status, and nothing of them is kept.
		refusals int
		status   int
	}
}

// Span is a span as it arrived, in a form that tests can read.
type Span struct {
	// The IDs are in hexadecimal. A root has no Parent.
	TraceID, ID, Parent string
	State               string
	Name                string

	// Server is set if the span is of that kind.
	Server     bool
	Start, End time.Time

	// Failed is set if the status is an error, of which Error is the message.
	Failed bool
	Error  string

	// Attributes and those of the Resource have values of the types string, bool, int64,
	// float64 and []string.
	Attributes map[string]any
	Events     []event
	Resource   map[string]any
}

// event is an event of a span.
type event struct {
	Name       string
	At         time.Time
	Attributes map[string]any
}

// New returns a collector that takes everything until the test ends.
func New(t testing.TB) *Collector {
	c := &Collector{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

// Refuse refuses the next requests with a status of HTTP.
func (c *Collector) Refuse(requests, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.refusals, c.mu.status = requests, status
}

// Spans returns all that arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.mu.spans)
}

// Await returns what arrived once it is as much as that, or fails the test.
func (c *Collector) Await(t testing.TB, spans int) []Span {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); len(c.Spans()) < spans; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d spans arrived, want %d", len(c.Spans()), spans)
		}
	}
	return c.Spans()
}

// ServeHTTP takes one request.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.refusals > 0 {
		c.mu.refusals--
		http.Error(w, "refused", c.mu.status)
		return
	}
	body, err := io.ReadAll(r.Body)
	var m collect.ExportTraceServiceRequest
	if err == nil {
		err = proto.Unmarshal(body, &m)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	for _, of := range m.ResourceSpans {
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				c.mu.spans = append(c.mu.spans, span(s, attributes(of.GetResource().GetAttributes())))
			}
		}
	}
}

// span converts a span. All spans of one resource share its attributes.
func span(s *trace.Span, resource map[string]any) Span {
	to := Span{
		TraceID: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		State: s.TraceState, Name: s.Name, Server: s.Kind == trace.Span_SPAN_KIND_SERVER,
		Start: time.Unix(0, int64(s.StartTimeUnixNano)), End: time.Unix(0, int64(s.EndTimeUnixNano)),
		Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR, Error: s.GetStatus().GetMessage(),
		Attributes: attributes(s.Attributes), Resource: resource,
	}
	for _, e := range s.Events {
		to.Events = append(to.Events, event{Name: e.Name, At: time.Unix(0, int64(e.TimeUnixNano)), Attributes: attributes(e.Attributes)})
	}
	return to
}

// attributes converts a list of keys and values.
func attributes(list []*common.KeyValue) map[string]any {
	all := make(map[string]any, len(list))
	for _, kv := range list {
		all[kv.Key] = value(kv.Value)
	}
	return all
}

// value converts a value. Of the other types, which overlapd does not send, it returns nil.
func value(v *common.AnyValue) any {
	switch v := v.GetValue().(type) {
	case *common.AnyValue_StringValue:
		return v.StringValue
	case *common.AnyValue_BoolValue:
		return v.BoolValue
	case *common.AnyValue_IntValue:
		return v.IntValue
	case *common.AnyValue_DoubleValue:
		return v.DoubleValue
	case *common.AnyValue_ArrayValue:
		texts := []string{}
		for _, item := range v.ArrayValue.GetValues() {
			texts = append(texts, item.GetStringValue())
		}
		return texts
	}
	return nil
}

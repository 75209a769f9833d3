// Package collector is a collector of spans for tests of any package: a
// [Collector] listens on loopback, takes what OTLP over HTTP sends, and hands it
// out. No program links it.
package collector

import (
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collect "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxRequestBytes limits one request.
const maxRequestBytes = 16 << 20

// Collector is one that listens. Its zero value does not.
type Collector struct {
	URL string // what a tracer's endpoint is to be

	server  *httptest.Server
	arrived chan struct{} // holds one; told of each request that was taken

	mu struct {
		sync.Mutex
		spans    []Span
		headers  http.Header // those of the last request
		path     string
		refusals int           // requests that are refused before one is taken
		status   int           // what requests are refused with
		hold     chan struct{} // requests wait until it is closed; nil if they do not
	}
}

// Span is a span as it arrived, in a form that tests can read.
type Span struct {
	TraceID, ID, Parent string // in hexadecimal; Parent "" for a root
	State               string
	Name                string
	Server              bool // its kind
	Start, End          time.Time
	Error               string // message of its status, if that is an error
	Failed              bool
	Attributes          map[string]any // string, bool, int64, float64 or []string
	Events              []Event
	Resource            map[string]any
}

// Event is an event of a span.
type Event struct {
	Name       string
	At         time.Time
	Attributes map[string]any
}

// New returns a collector that takes everything until the test ends.
func New(t testing.TB) *Collector {
	c := &Collector{arrived: make(chan struct{}, 1)}
	c.server = httptest.NewServer(c)
	c.URL = c.server.URL
	t.Cleanup(func() {
		c.Release()
		c.server.Close()
	})
	return c
}

// Refuse refuses the next requests with a status of HTTP.
func (c *Collector) Refuse(requests, status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.refusals, c.mu.status = requests, status
}

// Hold lets requests wait until Release.
func (c *Collector) Hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.hold = make(chan struct{})
}

// Release ends Hold.
func (c *Collector) Release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.hold != nil {
		close(c.mu.hold)
		c.mu.hold = nil
	}
}

// Header returns the path and the headers of the last request.
func (c *Collector) Header() (path string, h http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.path, c.mu.headers
}

// Spans returns all that arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.mu.spans...)
}

// Await returns what arrived once it is as much as that, or fails the test.
func (c *Collector) Await(t testing.TB, spans int) []Span {
	t.Helper()
	limit := time.After(20 * time.Second)
	for {
		if all := c.Spans(); len(all) >= spans {
			return all
		}
		select {
		case <-c.arrived:
		case <-limit:
			t.Fatalf("%d spans arrived, want %d", len(c.Spans()), spans)
		}
	}
}

// ServeHTTP takes one request.
func (c *Collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	hold, refused := c.mu.hold, c.mu.refusals > 0
	c.mu.path, c.mu.headers = r.URL.Path, r.Header.Clone()
	status := c.mu.status
	if refused {
		c.mu.refusals--
	}
	c.mu.Unlock()
	if refused {
		http.Error(w, "refused", status)
		return
	}
	if hold != nil {
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	spans, err := read(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	c.mu.spans = append(c.mu.spans, spans...)
	c.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-protobuf")
	select {
	case c.arrived <- struct{}{}:
	default:
	}
}

func read(r *http.Request) (all []Span, err error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxRequestBytes))
	if err != nil {
		return nil, err
	}
	if strings.EqualFold(r.Header.Get("Content-Encoding"), "gzip") {
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, err
		}
		if body, err = io.ReadAll(io.LimitReader(z, maxRequestBytes)); err != nil {
			return nil, err
		}
	}
	var m collect.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &m); err != nil {
		return nil, err
	}
	for _, of := range m.ResourceSpans {
		resource := attributes(of.GetResource().GetAttributes())
		for _, scope := range of.ScopeSpans {
			for _, s := range scope.Spans {
				all = append(all, span(s, resource))
			}
		}
	}
	return all, nil
}

func span(s *trace.Span, resource map[string]any) Span {
	to := Span{
		TraceID: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		State: s.TraceState, Name: s.Name, Server: s.Kind == trace.Span_SPAN_KIND_SERVER,
		Start: moment(s.StartTimeUnixNano), End: moment(s.EndTimeUnixNano),
		Failed: s.GetStatus().GetCode() == trace.Status_STATUS_CODE_ERROR, Error: s.GetStatus().GetMessage(),
		Attributes: attributes(s.Attributes), Resource: resource,
	}
	for _, e := range s.Events {
		to.Events = append(to.Events, Event{Name: e.Name, At: moment(e.TimeUnixNano), Attributes: attributes(e.Attributes)})
	}
	return to
}

func moment(ns uint64) time.Time { return time.Unix(0, int64(ns)) }

func attributes(list []*common.KeyValue) map[string]any {
	all := make(map[string]any, len(list))
	for _, kv := range list {
		all[kv.Key] = value(kv.Value)
	}
	return all
}

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

package otlp

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/tracing"
	"github.com/overlapd/overlapd/internal/fakes/collector"
)

// losses are what a tracer reported.
type losses struct {
	mu struct {
		sync.Mutex
		all []loss
	}
}

type loss struct {
	Queries, Spans uint64
	Err            error
}

func (l *losses) add(queries, spans uint64, why error) {
	one := loss{queries, spans, why}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.all = append(l.mu.all, one)
}

func (l *losses) list() []loss {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]loss(nil), l.mu.all...)
}

// start returns a tracer that sends to c, and its reports.
func start(t *testing.T, c *collector.Collector, change func(*Options)) (*Tracer, *losses) {
	t.Helper()
	reported := new(losses)
	o := Options{Tracing: config.Tracing{Endpoint: c.URL, Sample: 1, Service: defaultService, Instance: "GPU-1"}, Version: "1.2.3", Report: reported.add}
	if change != nil {
		change(&o)
	}
	tracer, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return tracer, reported
}

// held returns the URL of a server before a collector whose requests wait until
// they are released.
func held(t *testing.T, c *collector.Collector) (url string, release func()) {
	t.Helper()
	hold := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-hold:
			c.ServeHTTP(w, r)
		case <-r.Context().Done():
		}
	}))
	release = sync.OnceFunc(func() { close(hold) })
	t.Cleanup(func() {
		release()
		s.Close()
	})
	return s.URL, release
}

// stop closes a tracer, with time enough.
func stop(t *testing.T, tracer *Tracer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := tracer.Close(ctx); err != nil {
		t.Error(err)
	}
}

// origin is where the times of queries in tests count from.
var origin = time.Unix(1700000000, 0)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// fill makes a query that waited from 1 to 5 ms, ran until 9, and was answered
// at 10.
func fill(q *tracing.Query) {
	q.Request = tracing.Request{Protocol: "http", Method: "POST", Route: "/v2/models/{model}/infer", Path: "/v2/models/a/infer", Scheme: "http",
		Version: "1.1", Server: "localhost", Port: 8000, Client: "127.0.0.1", UserAgent: "test"}
	q.Service, q.Device, q.ID, q.Number, q.Size = "a", "cpu", "mine", 7, 2
	q.Epoch, q.Began, q.Arrival, q.Ended = origin, origin, origin.Add(ms(1)), origin.Add(ms(10))
	q.Deadline = origin.Add(ms(51))
	q.Ran(tracing.Run{Round: 3, Batch: 4, BatchSize: 2, Start: 0, End: 6, Of: 6, Reached: 6, Group: []tracing.Member{{Service: "a", End: 6}, {Service: "b", Start: 2, End: 4}},
		Predicted: ms(4), Bound: ms(5), Began: ms(5), Ended: ms(9), Took: ms(3), RoundTook: ms(4), Status: "done"})
	q.Answered = true
	q.Answer.At, q.Answer.Queue, q.Answer.Run, q.Answer.Result, q.Answer.Reason = ms(9), ms(4), ms(3), "finished", "none"
	q.Encoding, q.Status.Code = origin.Add(ms(9)), 200
}

// byName returns the spans of that name.
func byName(all []collector.Span, name string) (some []collector.Span) {
	for _, s := range all {
		if s.Name == name {
			some = append(some, s)
		}
	}
	return some
}

const (
	parentTrace = "0af7651916cd43dd8448eb211c80319c"
	parentSpan  = "b7ad6b7169203331"
)

// A query becomes a span with one for each thing that happened to it.
func TestTree(t *testing.T) {
	c := collector.New(t)
	tracer, _ := start(t, c, nil)
	q := tracer.Begin(tracing.Parent{Traceparent: []string{"00-" + parentTrace + "-" + parentSpan + "-01"}, Tracestate: []string{"x=1", "y=2"}})
	fill(q)
	tracer.Finish(q)
	stop(t, tracer)
	all := c.Await(t, 5)
	if len(all) != 5 {
		t.Fatalf("%d spans: %+v", len(all), all)
	}
	root := byName(all, "POST /v2/models/{model}/infer")[0]
	if root.TraceID != parentTrace || root.Parent != parentSpan || root.State != "x=1,y=2" || !root.Server || root.Failed {
		t.Errorf("the query's: %+v", root)
	}
	if !root.Start.Equal(origin) || !root.End.Equal(origin.Add(ms(10))) {
		t.Errorf("it lasts from %v to %v", root.Start, root.End)
	}
	for key, want := range map[string]any{
		"http.request.method": "POST", "http.response.status_code": int64(200), "url.path": "/v2/models/a/infer", "server.port": int64(8000),
		"overlapd.service": "a", "overlapd.batch": int64(4), "overlapd.deadline_ms": 50.0, "overlapd.late": false, "overlapd.result": "finished",
		"overlapd.queue_ms": 4.0, "overlapd.predicted_ms": 4.0, "overlapd.measured_ms": 4.0, "overlapd.query.id": "mine",
	} {
		if got := root.Attributes[key]; got != want {
			t.Errorf("%s is %v, want %v", key, got, want)
		}
	}
	if root.Resource["service.name"] != "overlapd" || root.Resource["service.instance.id"] != "GPU-1" || root.Resource["service.version"] != "1.2.3" {
		t.Errorf("whose it is: %v", root.Resource)
	}
	for name, want := range map[string][2]int{"read": {0, 1}, "queue": {1, 5}, "run": {5, 8}, "encode": {9, 10}} {
		list := byName(all, name)
		if len(list) != 1 || list[0].Parent != root.ID || list[0].TraceID != parentTrace ||
			!list[0].Start.Equal(origin.Add(ms(want[0]))) || !list[0].End.Equal(origin.Add(ms(want[1]))) {
			t.Errorf("%s, want from %d to %d ms: %+v", name, want[0], want[1], list)
		}
	}
	run := byName(all, "run")[0].Attributes
	if group, _ := run["overlapd.group"].([]string); len(group) != 2 || group[1] != "b[2,4)" || run["overlapd.round"] != int64(3) || run["overlapd.span.end"] != int64(6) {
		t.Errorf("a run: %v", run)
	}
	if n := tracer.Counts(); n != (counts{Queries: 1, Exported: 5}) {
		t.Errorf("%+v", n)
	}
}

// A batch that pauses, loses its worker and runs again tells so.
func TestRetryAndPause(t *testing.T) {
	c := collector.New(t)
	tracer, _ := start(t, c, nil)
	q := tracer.Begin(tracing.Parent{})
	fill(q)
	q.Runs = q.Runs[:0]
	q.Ran(tracing.Run{Round: 3, Batch: 4, End: 2, Of: 6, Reached: 2, Began: ms(2), Ended: ms(3), Took: ms(1), Status: "done"})
	q.Ran(tracing.Run{Round: 5, Batch: 4, Start: 2, End: 6, Of: 6, Began: ms(4), Ended: ms(5), Status: statusLost})
	q.Ran(tracing.Run{Round: 6, Batch: 9, End: 6, Of: 6, Reached: 6, Began: ms(7), Ended: ms(9), Took: ms(2), Status: "done"})
	q.Answer.Retries = 1
	tracer.Finish(q)
	all := c.Await(t, 8)
	stop(t, tracer)
	root := byName(all, "POST /v2/models/{model}/infer")[0]
	if len(root.Events) != 2 || root.Events[0].Name != "pause" || root.Events[0].Attributes["overlapd.pause_ms"] != 1.0 || root.Events[0].Attributes["overlapd.operator"] != int64(2) ||
		root.Events[1].Name != "retry" || !root.Events[1].At.Equal(origin.Add(ms(5))) {
		t.Errorf("events: %+v", root.Events)
	}
	if root.Parent != "" || root.Attributes["overlapd.retries"] != int64(1) {
		t.Errorf("the query's: %+v", root)
	}
	if waits := byName(all, "queue"); len(waits) != 2 || !waits[1].Start.Equal(origin.Add(ms(5))) || !waits[1].End.Equal(origin.Add(ms(7))) {
		t.Errorf("it waited: %+v", waits)
	}
	if runs := byName(all, "run"); len(runs) != 3 || !runs[1].Failed || runs[0].Failed || !runs[1].End.Equal(origin.Add(ms(5))) {
		t.Errorf("it ran: %+v", runs)
	}
}

// A query that was dropped, one that was refused, and one over gRPC.
func TestErrors(t *testing.T) {
	c := collector.New(t)
	tracer, _ := start(t, c, nil)
	dropped := tracer.Begin(tracing.Parent{})
	fill(dropped)
	dropped.Runs, dropped.Encoding = nil, time.Time{}
	a := &dropped.Answer
	a.At, a.Queue, a.Run, a.Result, a.Reason = ms(8), ms(7), 0, "dropped", "cannot_finish"
	s := &dropped.Status
	s.Code, s.Reason, s.Message, s.Ours = 503, "cannot_finish", "too late", true
	tracer.Finish(dropped)
	refused := tracer.Begin(tracing.Parent{})
	refused.Request = tracing.Request{Protocol: "grpc", Method: "inference.GRPCInferenceService/ModelInfer"}
	refused.Began, refused.Ended = origin, origin.Add(ms(1))
	s = &refused.Status
	s.Code, s.GRPC, s.Reason, s.Message = 400, "InvalidArgument", "invalid", "bad"
	tracer.Finish(refused)
	stop(t, tracer)
	all := c.Await(t, 4)
	if len(all) != 4 {
		t.Fatalf("%d spans: %+v", len(all), all)
	}
	root := byName(all, "POST /v2/models/{model}/infer")[0]
	if !root.Failed || root.Error != "too late" || root.Attributes["error.type"] != "cannot_finish" || root.Attributes["overlapd.reason"] != "cannot_finish" {
		t.Errorf("dropped: %+v", root)
	}
	if waits := byName(all, "queue"); len(waits) != 1 || !waits[0].End.Equal(origin.Add(ms(8))) {
		t.Errorf("it waited: %+v", waits)
	}
	bad := byName(all, "inference.GRPCInferenceService/ModelInfer")[0]
	if bad.Failed || bad.Attributes["rpc.system.name"] != "grpc" || bad.Attributes["rpc.response.status_code"] != "InvalidArgument" || bad.Attributes["error.type"] != "invalid" {
		t.Errorf("refused: %+v", bad)
	}
}

// Whether a query is traced is its parent's to say, if it has one.
func TestSampling(t *testing.T) {
	c := collector.New(t)
	for _, ratio := range []float64{0, 1} {
		tracer, _ := start(t, c, func(o *Options) { o.Sample = ratio })
		for traceparent, want := range map[string]bool{
			"": ratio == 1,
			"00-" + parentTrace + "-" + parentSpan + "-01":      true,
			"00-" + parentTrace + "-" + parentSpan + "-00":      false,
			"00-" + parentTrace + "-" + parentSpan + "-zz":      ratio == 1,
			"01-" + parentTrace + "-" + parentSpan + "-01-more": true,
		} {
			var p tracing.Parent
			if traceparent != "" {
				p.Traceparent = []string{traceparent}
			}
			if q := tracer.Begin(p); (q != nil) != want {
				t.Errorf("ratio %v, %q: traced is %t", ratio, traceparent, q != nil)
			}
		}
		stop(t, tracer)
	}
	var none *Tracer
	if none.Begin(tracing.Parent{}) != nil || none.Counts() != (counts{}) || none.Close(context.Background()) != nil {
		t.Error("no tracer traces")
	}
}

// A part of the queries is traced where nobody says which.
func TestRatio(t *testing.T) {
	c := collector.New(t)
	tracer, _ := start(t, c, func(o *Options) { o.Sample = 0.25 })
	defer stop(t, tracer)
	n := 0
	for range 10000 {
		if q := tracer.Begin(tracing.Parent{}); q != nil {
			n++
			tracer.free(q)
		}
	}
	if n < 2200 || n > 2800 { // seven standard deviations
		t.Errorf("%d of 10000 are traced", n)
	}
}

// A collector that does not answer keeps nobody waiting: what is too much is
// left out, counted and told of once.
func TestSlowCollector(t *testing.T) {
	c := collector.New(t)
	url, release := held(t, c)
	tracer, reported := start(t, c, func(o *Options) { o.Endpoint = url })
	const queries = maxWaiting + maxSpans + 2*maxBatch // more than fit in anywhere
	for range queries {
		q := tracer.Begin(tracing.Parent{})
		fill(q)
		tracer.Finish(q)
	}
	n := tracer.Counts()
	if n.Dropped == 0 || n.Queries != queries || n.Exported != 0 {
		t.Errorf("%+v", n)
	}
	if l := reported.list(); len(l) != 1 || !errors.Is(l[0].Err, errBehind) || l[0].Queries == 0 {
		t.Errorf("reported: %+v", l)
	}
	release()
	stop(t, tracer)
	if n = tracer.Counts(); n.Exported != 5*(n.Queries-n.Dropped) || n.Failed != 0 {
		t.Errorf("queries in parts: %+v", n)
	}
}

// Closing does not wait for a collector that never answers.
func TestCloseGivesUp(t *testing.T) {
	c := collector.New(t)
	url, _ := held(t, c)
	tracer, _ := start(t, c, func(o *Options) { o.Endpoint = url })
	q := tracer.Begin(tracing.Parent{})
	fill(q)
	tracer.Finish(q)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tracer.Close(ctx); err == nil {
		t.Error("nothing was sent, and closing says nothing")
	}
	if n := tracer.Counts(); n.Exported != 0 || n.Failed != 5 {
		t.Errorf("%+v", n)
	}
	q = &tracing.Query{}
	tracer.Finish(q) // too late
	if n := tracer.Counts(); n.Dropped != 1 {
		t.Errorf("%+v", n)
	}
}

// One that refuses for a moment is asked again; one that refuses for good costs
// the batch.
func TestRefusals(t *testing.T) {
	c := collector.New(t)
	c.Refuse(1, http.StatusServiceUnavailable)
	tracer, reported := start(t, c, nil)
	q := tracer.Begin(tracing.Parent{})
	fill(q)
	tracer.Finish(q)
	c.Await(t, 5)
	stop(t, tracer)
	if l := reported.list(); len(l) != 0 {
		t.Errorf("reported: %+v", l)
	}
	c.Refuse(1, http.StatusForbidden)
	tracer, reported = start(t, c, nil)
	q = tracer.Begin(tracing.Parent{})
	fill(q)
	tracer.Finish(q)
	stop(t, tracer)
	if l := reported.list(); len(l) != 1 || l[0].Spans != 5 || tracer.Counts().Failed != 5 {
		t.Errorf("reported: %+v", l)
	}
}

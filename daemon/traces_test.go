package daemon

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/observe/tracing/otlp"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/internal/fakes/collector"
	"github.com/overlapd/overlapd/internal/fakes/fakeworkers"
	"github.com/overlapd/overlapd/models"
)

// parentOf returns a traceparent with these flags.
func parentOf(flags string) string { return "00-" + traceOfTest + "-b7ad6b7169203331-" + flags }

const traceOfTest = "0af7651916cd43dd8448eb211c80319c"

// tracedServer is a backend with fake workers behind both endpoints, of which
// every query is traced that does not say otherwise.
type tracedServer struct {
	*backend
	t         *testing.T
	workers   *fakeworkers.Workers
	collector *collector.Collector
	url       string
	tracer    *otlp.Tracer
	client    inference.GRPCInferenceServiceClient
	close     func() // sends all spans
}

func serveTraced(t *testing.T, services int, sample float64, change func(*config.Config)) *tracedServer {
	t.Helper()
	b, f := startLoop(t, services, change)
	c := collector.New(t)
	tracer, err := otlp.New(otlp.Options{Tracing: config.Tracing{Endpoint: c.URL, Sample: sample, Service: query.DaemonName, Instance: "test"}, Version: "test"})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	s := &tracedServer{backend: b, t: t, workers: f, collector: c, tracer: tracer}
	s.close = func() {
		if !closed {
			closed = true
			if err := tracer.Close(patient(t)); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(s.close)
	q := queriesOf(b, testLimits())
	q.Tracer = tracer
	s.url = "http://" + serveHTTP(t, q, testLimits()).String()
	s.client = serveRemote(t, q, testLimits())
	return s
}

// ask asks a service in a goroutine. Its output is no tensor, so only binary
// answers can be written.
func (s *tracedServer) ask(service, body string, header ...string) <-chan int {
	status := make(chan int, 1)
	go func() {
		r, err := http.NewRequest("POST", s.url+"/v2/models/"+service+"/infer", strings.NewReader(body))
		if err != nil {
			s.t.Error(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Add(header[i], header[i+1])
		}
		r.Header.Set("User-Agent", "a test")
		r.Close = true
		a, err := http.DefaultClient.Do(r)
		if err != nil {
			s.t.Error(err)
			status <- 0
			return
		}
		defer a.Body.Close()
		io.Copy(io.Discard, a.Body)
		for _, name := range []string{"Traceparent", "Tracestate"} {
			if a.Header.Get(name) != "" {
				s.t.Errorf("the answer has %s, which is for requests", name)
			}
		}
		status <- a.StatusCode
	}()
	return status
}

var tracedBody = `{"id":"mine","inputs":[{"name":"X","shape":[1,16],"datatype":"INT32","data":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]}],` +
	`"outputs":[{"name":"Y","parameters":{"binary_data":true}}]}`

// tree sorts spans below their root, which is returned first.
func tree(t *testing.T, all []collector.Span) (root collector.Span, below map[string][]collector.Span) {
	t.Helper()
	below = map[string][]collector.Span{}
	for _, s := range all {
		if s.Server {
			root = s
			continue
		}
		below[s.Name] = append(below[s.Name], s)
	}
	for name, list := range below {
		for _, s := range list {
			if s.Parent != root.ID || s.TraceID != root.TraceID {
				t.Errorf("%s is not below the query: %+v", name, s)
			}
			if s.Start.Before(root.Start) || s.End.After(root.End) || s.End.Before(s.Start) {
				t.Errorf("%s lasts from %v to %v, the query from %v to %v", name, s.Start, s.End, root.Start, root.End)
			}
		}
	}
	return root, below
}

// A query over HTTP: the whole tree, below the client's span.
func TestTraceHTTP(t *testing.T) {
	s := serveTraced(t, 1, 0, nil)
	status := s.ask("s0", tracedBody, "traceparent", parentOf("01"), "tracestate", "a=1", "tracestate", "b=2")
	s.workers.Await()
	s.workers.End(models.SpanDone)
	if got := <-status; got != 200 {
		t.Fatalf("status %d", got)
	}
	s.close()
	root, below := tree(t, s.collector.Spans())
	if root.TraceID != traceOfTest || root.Parent != "b7ad6b7169203331" || root.State != "a=1,b=2" || root.Name != "POST /v2/models/{model}/infer" {
		t.Errorf("root: %+v", root)
	}
	for key, want := range map[string]any{
		"overlapd.service": "s0", "overlapd.query.id": "mine", "overlapd.size": int64(1), "overlapd.result": "finished",
		"http.response.status_code": int64(200), "user_agent.original": "a test", "overlapd.deadline_ms": 60000.0, "overlapd.rounds": int64(1),
		"server.address": "127.0.0.1", "client.address": "127.0.0.1", "url.scheme": "http", "network.protocol.version": "1.1",
	} {
		if root.Attributes[key] != want {
			t.Errorf("%s is %v, want %v", key, root.Attributes[key], want)
		}
	}
	if len(below["queue"]) != 1 || len(below["run"]) != 1 || len(below["encode"]) != 1 {
		t.Fatalf("below it: %+v", below)
	}
	run := below["run"][0]
	if group, _ := run.Attributes["overlapd.group"].([]string); len(group) != 1 || group[0] != "s0[0,4)" || run.Attributes["overlapd.span.status"] != "done" || run.Attributes["overlapd.span.of"] != int64(fakeworkers.Operators) {
		t.Errorf("run: %+v", run)
	}
	if !below["queue"][0].End.Equal(run.Start) || below["encode"][0].Start.Before(run.Start) {
		t.Errorf("order: %+v", below)
	}
}

// A gRPC call carries its parent in its metadata.
func TestTraceGRPC(t *testing.T) {
	s := serveTraced(t, 1, 0, nil)
	ctx := metadata.AppendToOutgoingContext(patient(t), "traceparent", parentOf("01"), "tracestate", "c=3")
	ended := make(chan error, 1)
	go func() {
		_, err := s.client.ModelInfer(ctx, remoteQuery("s0"))
		ended <- err
	}()
	s.workers.Await()
	s.workers.End(models.SpanDone)
	<-ended // its output is no tensor of that type; that it was answered is what counts
	s.close()
	root, below := tree(t, s.collector.Spans())
	if root.TraceID != traceOfTest || root.State != "c=3" || root.Name != "inference.GRPCInferenceService/ModelInfer" || root.Attributes["rpc.method"] != root.Name {
		t.Errorf("root: %+v", root)
	}
	if root.Attributes["rpc.response.status_code"] != "OK" || root.Attributes["overlapd.service"] != "s0" || len(below["run"]) != 1 || len(below["queue"]) != 1 {
		t.Errorf("%+v below %+v", below, root.Attributes)
	}
}

// A query whose worker is lost waits and runs again.
func TestTraceOfRetry(t *testing.T) {
	s := serveTraced(t, 1, 1, nil)
	status := s.ask("s0", tracedBody)
	s.workers.Await()
	s.workers.Kill(0)
	s.workers.Revive(0, fakeworkers.Operators)
	s.workers.Await()
	s.workers.End(models.SpanDone)
	if got := <-status; got != 200 {
		t.Fatalf("status %d", got)
	}
	s.close()
	root, below := tree(t, s.collector.Spans())
	if len(below["run"]) != 2 || len(below["queue"]) != 2 || len(root.Events) != 1 || root.Events[0].Name != "retry" || root.Attributes["overlapd.retries"] != int64(1) {
		t.Errorf("%+v below %+v", below, root)
	}
}

// A client that leaves ends its query; what ran for it stays.
func TestTraceOfCancelled(t *testing.T) {
	s := serveTraced(t, 1, 1, nil)
	ctx, cancel := context.WithCancel(patient(t))
	ended := make(chan error, 1)
	go func() {
		_, err := s.client.ModelInfer(ctx, remoteQuery("s0"))
		ended <- err
	}()
	s.workers.Await()
	cancel()
	<-ended
	all := s.collector.Await(t, 3)
	s.workers.End(models.SpanStopped)
	s.backend.Ask(func() {})
	root, below := tree(t, all)
	if root.Attributes["rpc.response.status_code"] != "CANCELLED" || root.Failed || root.Attributes["overlapd.result"] != "cancelled" || len(below["run"]) != 1 {
		t.Errorf("%+v below %+v", below, root)
	}
}

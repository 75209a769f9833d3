package rpc

import (
	"bytes"
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// wants fails the test unless err has this code and says that.
func wants(t *testing.T, name string, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(status.Convert(err).Message(), text) {
		t.Errorf("%s: got %v, want %v that says %q", name, err, code, text)
	}
}

func TestProbes(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	ctx := r.context()
	if a, err := r.client.ServerLive(ctx, &inference.ServerLiveRequest{}); err != nil || !a.Live {
		t.Errorf("live: %v, %v", a, err)
	}
	if a, err := r.client.ServerReady(ctx, &inference.ServerReadyRequest{}); err != nil || !a.Ready {
		t.Errorf("ready: %v, %v", a, err)
	}
	if a, err := r.client.ModelReady(ctx, &inference.ModelReadyRequest{Name: "echo", Version: "1"}); err != nil || !a.Ready {
		t.Errorf("echo ready: %v, %v", a, err)
	}
	if a, err := r.client.ModelReady(ctx, &inference.ModelReadyRequest{Name: "absent"}); err != nil || a.Ready {
		t.Errorf("absent ready: %v, %v", a, err)
	}
	r.setDown(true)
	if a, err := r.client.ServerReady(ctx, &inference.ServerReadyRequest{}); err != nil || a.Ready {
		t.Errorf("ready, but down: %v, %v", a, err)
	}
	if a, err := r.client.ServerMetadata(ctx, &inference.ServerMetadataRequest{}); err != nil || a.Name != "overlapd" || a.Version != "test" || len(a.Extensions) != 7 {
		t.Errorf("metadata: %v, %v", a, err)
	}
	_, err := r.client.ModelReady(ctx, &inference.ModelReadyRequest{Name: "none"})
	wants(t, "ready", err, codes.NotFound, "none")
	_, err = r.client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "echo", Version: "2"})
	wants(t, "version", err, codes.NotFound, "only version 1")
	_, err = r.client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "absent"})
	wants(t, "metadata of what is not loaded", err, codes.Unavailable, "not ready")
	_, err = r.client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "absent"})
	wants(t, "configuration of what is not loaded", err, codes.Unavailable, "not ready")
	_, err = r.client.ModelStatistics(ctx, &inference.ModelStatisticsRequest{Name: "none"})
	wants(t, "statistics", err, codes.NotFound, "none")
	_, err = r.client.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{RepositoryName: "x"})
	wants(t, "index", err, codes.NotFound, "repository")
}

func same(t *testing.T, name string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
		t.Errorf("%s: -want +got\n%s", name, d)
	}
}

func TestDescriptions(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	ctx := r.context()
	m, err := r.client.ModelMetadata(ctx, &inference.ModelMetadataRequest{Name: "pair"})
	if err != nil {
		t.Fatal(err)
	}
	x := &inference.ModelMetadataResponse_TensorMetadata{Name: "X", Datatype: "FP32", Shape: []int64{-1, 4}}
	text := &inference.ModelMetadataResponse_TensorMetadata{Name: "T", Datatype: "BYTES", Shape: []int64{-1, 1}}
	same(t, "metadata", m, &inference.ModelMetadataResponse{
		Name: "pair", Versions: []string{"1"}, Platform: "onnxruntime_onnx",
		Inputs: []*inference.ModelMetadataResponse_TensorMetadata{x, text}, Outputs: []*inference.ModelMetadataResponse_TensorMetadata{x},
	})
	c, err := r.client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "pair"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, "configuration", c.Config, &inference.ModelConfig{
		Name: "pair", Platform: "onnxruntime_onnx", Backend: "onnxruntime", MaxBatchSize: 8,
		VersionPolicy: &inference.ModelVersionPolicy{PolicyChoice: &inference.ModelVersionPolicy_Latest_{Latest: &inference.ModelVersionPolicy_Latest{NumVersions: 1}}},
		Input: []*inference.ModelInput{
			{Name: "X", DataType: inference.DataType_TYPE_FP32, Dims: []int64{4}}, {Name: "T", DataType: inference.DataType_TYPE_STRING, Dims: []int64{1}},
		},
		Output:           []*inference.ModelOutput{{Name: "X", DataType: inference.DataType_TYPE_FP32, Dims: []int64{4}}},
		SchedulingChoice: &inference.ModelConfig_DynamicBatching{DynamicBatching: &inference.ModelDynamicBatching{}},
		Parameters: map[string]*inference.ModelParameter{
			"qos_target_us": {StringValue: "60000000"}, "queue_limit": {StringValue: "9"}, "policy": {StringValue: "edf"},
			"device": {StringValue: "cpu"}, "operators": {StringValue: "2"}, "sha256": {StringValue: "abc"},
		},
		ModelTransactionPolicy: &inference.ModelTransactionPolicy{},
	})
	free, err := r.client.ModelConfig(ctx, &inference.ModelConfigRequest{Name: "half"})
	if err != nil || free.Config.MaxBatchSize != 0 || free.Config.SchedulingChoice != nil || free.Config.Input[0].DataType != inference.DataType_TYPE_FP16 || free.Config.Input[0].Dims[0] != -1 {
		t.Errorf("configuration of any rank: %v, %v", free, err)
	}
	if _, err := r.client.ModelInfer(ctx, typedRequest("1")); err != nil {
		t.Fatal(err)
	}
	s, err := r.client.ModelStatistics(ctx, &inference.ModelStatisticsRequest{})
	if err != nil || len(s.ModelStats) != 6 || s.ModelStats[0].LastInference == 0 || s.ModelStats[1].LastInference != 0 {
		t.Fatalf("%v, %v", s, err)
	}
	same(t, "statistics", s.ModelStats[0], &inference.ModelStatistics{
		Name: "echo", Version: "1", LastInference: s.ModelStats[0].LastInference, InferenceCount: 1,
		InferenceStats: &inference.InferStatistics{
			Success: s.ModelStats[0].InferenceStats.Success, Queue: &inference.StatisticDuration{Count: 1, Ns: 9}, Fail: &inference.StatisticDuration{},
			ComputeInput: &inference.StatisticDuration{Count: 1}, ComputeInfer: &inference.StatisticDuration{Count: 1, Ns: 20}, ComputeOutput: &inference.StatisticDuration{Count: 1},
			CacheHit: &inference.StatisticDuration{}, CacheMiss: &inference.StatisticDuration{},
		},
	})
	i, err := r.client.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{})
	if err != nil || len(i.Models) != 6 || i.Models[0].State != "READY" || i.Models[1].State != "LOADING" || i.Models[1].Reason != "loading" {
		t.Errorf("index: %v, %v", i, err)
	}
	if i, err = r.client.RepositoryIndex(ctx, &inference.RepositoryIndexRequest{Ready: true}); err != nil || len(i.Models) != 5 {
		t.Errorf("index of what is ready: %v, %v", i, err)
	}
}

// Requests come raw or typed; answers are raw.
func TestForms(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	data := "\x00\x00\x80\x3f\x00\x00\x00\x40\x00\x00\x40\x40\x00\x00\x80\x40"
	raw := typedRequest("a")
	raw.Inputs[0].Contents, raw.RawInputContents = nil, [][]byte{[]byte(data)}
	ignored := typedRequest("a")
	ignored.Parameters = named("binary_data_output", false)
	half := &inference.ModelInferRequest{
		ModelName: "half", RawInputContents: [][]byte{[]byte("ab"), []byte(data)},
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{Name: "H", Datatype: "FP16", Shape: []int64{1}}, {Name: "X", Datatype: "FP32", Shape: []int64{4}}},
	}
	for name, q := range map[string]*inference.ModelInferRequest{"typed": typedRequest("a"), "raw": raw, "typed, not raw asked for": ignored, "half": half} {
		a, err := r.client.ModelInfer(r.context(), q)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		last := len(a.Outputs) - 1
		if a.ModelName != q.ModelName || a.ModelVersion != "1" || a.Id != q.Id || len(a.Outputs) != len(q.Inputs) || !slices.Equal(a.Outputs[last].Shape, q.Inputs[last].Shape) {
			t.Errorf("%s: %v", name, a)
		}
		if len(a.RawOutputContents) != last+1 || string(a.RawOutputContents[last]) != data || a.Outputs[last].Contents != nil || a.Outputs[0].Contents != nil {
			t.Errorf("%s: %v", name, a)
		}
		if !bytes.Equal(r.last().Inputs[last].Data, []byte(data)) {
			t.Errorf("%s: the host got % x", name, r.last().Inputs[last].Data)
		}
	}
	if a, err := r.client.ModelInfer(r.context(), raw, grpc.UseCompressor(gzip.Name)); err != nil || string(a.RawOutputContents[0]) != data {
		t.Errorf("compressed: %v, %v", a, err)
	}
}

// A request for something that does not exist is refused before the host has it.
func TestRefused(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	text := typedRequest("1")
	text.Inputs = append(text.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: "T", Datatype: "BYTES", Shape: []int64{1, 1}})
	text.Inputs[0].Contents, text.RawInputContents = nil, [][]byte{make([]byte, 16), {255, 255, 255, 255, 0}}
	output := func(names ...string) func(*inference.ModelInferRequest) {
		return func(q *inference.ModelInferRequest) {
			for _, n := range names {
				q.Outputs = append(q.Outputs, &inference.ModelInferRequest_InferRequestedOutputTensor{Name: n})
			}
		}
	}
	for name, c := range map[string]struct {
		change func(*inference.ModelInferRequest)
		code   codes.Code
		text   string
	}{
		"no such model":   {func(q *inference.ModelInferRequest) { q.ModelName = "none" }, codes.NotFound, "none"},
		"not loaded":      {func(q *inference.ModelInferRequest) { q.ModelName = "absent" }, codes.Unavailable, "not ready"},
		"no such version": {func(q *inference.ModelInferRequest) { q.ModelVersion = "2" }, codes.NotFound, "only version 1"},
		"no input":        {func(q *inference.ModelInferRequest) { q.Inputs = nil }, codes.InvalidArgument, "X"},
		"unknown input":   {func(q *inference.ModelInferRequest) { q.Inputs[0].Name = "Z" }, codes.InvalidArgument, "Z"},
		"twice":           {func(q *inference.ModelInferRequest) { q.Inputs = append(q.Inputs, q.Inputs[0]) }, codes.InvalidArgument, "X"},
		"rank 9":          {func(q *inference.ModelInferRequest) { q.Inputs[0].Shape = []int64{1, 1, 1, 1, 1, 1, 1, 1, 4} }, codes.InvalidArgument, "dimensions"},
		"negative":        {func(q *inference.ModelInferRequest) { q.Inputs[0].Shape = []int64{-1, -4} }, codes.InvalidArgument, "-1"},
		"too few values":  {func(q *inference.ModelInferRequest) { q.Inputs[0].Shape[0] = 2 }, codes.InvalidArgument, "X"},
		"text cut off": {func(q *inference.ModelInferRequest) {
			q.ModelName, q.Inputs, q.RawInputContents = "pair", text.Inputs, text.RawInputContents
		}, codes.InvalidArgument, "T"},
		"id":             {func(q *inference.ModelInferRequest) { q.Id = "a\nb" }, codes.InvalidArgument, "id"},
		"unknown output": {output("Z"), codes.InvalidArgument, "Z"},
		"output twice":   {output("X", "X"), codes.InvalidArgument, "X"},
	} {
		q := typedRequest("1")
		c.change(q)
		_, err := r.client.ModelInfer(r.context(), q)
		wants(t, name, err, c.code, c.text)
	}
	if _, _, all := r.counts(); all != 0 {
		t.Errorf("the host got %d of them", all)
	}
}

// The time of a query is what its parameter and the deadline of its call allow, whichever is less.
func TestTimeouts(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	for name, c := range map[string]struct {
		parameter, call, least, most time.Duration
	}{
		"none":               {0, 0, 0, 0},
		"parameter":          {5 * time.Millisecond, 0, 5 * time.Millisecond, 5 * time.Millisecond},
		"call":               {0, time.Hour, 59 * time.Minute, time.Hour},
		"call, parameter":    {5 * time.Millisecond, time.Hour, 5 * time.Millisecond, 5 * time.Millisecond},
		"parameter is later": {2 * time.Hour, time.Hour, 59 * time.Minute, time.Hour},
	} {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if c.call > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.call)
		}
		q := typedRequest("1")
		if c.parameter > 0 {
			q.Parameters = named("timeout", c.parameter.Microseconds())
		}
		_, err := r.client.ModelInfer(ctx, q)
		cancel()
		if got := r.last().Timeout; err != nil || got < c.least || got > c.most {
			t.Errorf("%s: the query has %v, want %v to %v (%v)", name, got, c.least, c.most, err)
		}
	}
}

func TestFaults(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	for _, c := range []struct {
		status int
		reason string
		want   codes.Code
	}{
		{400, "invalid", codes.InvalidArgument},
		{403, "forbidden", codes.PermissionDenied},
		{404, "not_found", codes.NotFound},
		{408, "timeout", codes.DeadlineExceeded},
		{413, "too_large", codes.ResourceExhausted},
		{500, "worker_lost", codes.Internal},
		{500, "model_failed", codes.Internal},
		{503, "queue_full", codes.Unavailable},
		{503, "cannot_finish", codes.DeadlineExceeded},
		{503, "draining", codes.Unavailable},
		{503, "deadline_passed", codes.DeadlineExceeded},
		{503, "cancelled", codes.Canceled},
	} {
		f := &query.Error{Status: c.status, Reason: c.reason, Message: "it is " + c.reason}
		if c.status == 503 {
			f.RetryAfter = 3 * time.Second
		}
		r.fail(f)
		var trailer metadata.MD
		_, err := r.client.ModelInfer(r.context(), typedRequest("1"), grpc.Trailer(&trailer))
		wants(t, c.reason, err, c.want, "it is "+c.reason)
		if got := trailer.Get(reasonTrailer); len(got) != 1 || got[0] != c.reason {
			t.Errorf("%s: the trailer has %q", c.reason, got)
		}
		var info *errdetails.ErrorInfo
		var retry *errdetails.RetryInfo
		for _, d := range status.Convert(err).Details() {
			switch d := d.(type) {
			case *errdetails.ErrorInfo:
				info = d
			case *errdetails.RetryInfo:
				retry = d
			}
		}
		if info == nil || info.Reason != strings.ToUpper(c.reason) || info.Domain != query.DaemonName {
			t.Errorf("%s: %v", c.reason, info)
		}
		if (retry != nil) != (c.status == 503) || retry != nil && retry.RetryDelay.AsDuration() != 3*time.Second {
			t.Errorf("%s: %v", c.reason, retry)
		}
	}
	r.fail(context.DeadlineExceeded) // what is not meant for clients
	_, err := r.client.ModelInfer(r.context(), typedRequest("1"))
	wants(t, "an error of the host's own", err, codes.Internal, "see its log")
	if n := r.list[0].Stats.Counts().Fail.Count; n != 13 {
		t.Errorf("%d queries have failed, want 13", n)
	}
}

// What Triton offers and overlapd does not is refused with what does its work here.
func TestNotOffered(t *testing.T) {
	r := start(t, &fake{}, testLimits())
	for method, want := range map[string]string{
		"SystemSharedMemoryStatus": "in the request",
		"CudaSharedMemoryRegister": "in the request", "TraceSetting": "[tracing]", "LogSettings": "log_level", "Another": "unknown method",
	} {
		err := r.conn.Invoke(r.context(), "/inference.GRPCInferenceService/"+method, &inference.ServerLiveRequest{}, &inference.ServerLiveResponse{})
		wants(t, method, err, codes.Unimplemented, want)
	}
	shared := rawRequest(4)
	shared.Inputs[0].Parameters = named("shared_memory_region", "a")
	shared.RawInputContents = nil
	_, err := r.client.ModelInfer(r.context(), shared)
	wants(t, "an input in shared memory", err, codes.Unimplemented, "shared_memory")
	some := typedRequest("1")
	some.ModelName = "half"
	some.Inputs = append(shared.Inputs, some.Inputs[0])
	some.RawInputContents = [][]byte{{}}
	_, err = r.client.ModelInfer(r.context(), some)
	wants(t, "one of two", err, codes.Unimplemented, "shared_memory")
	out := rawRequest(4)
	out.Outputs = []*inference.ModelInferRequest_InferRequestedOutputTensor{{Name: "X", Parameters: named("shared_memory_byte_size", int64(4))}}
	_, err = r.client.ModelInfer(r.context(), out)
	wants(t, "an output in shared memory", err, codes.Unimplemented, "shared_memory")
}

// A query that exceeds the time that its client allowed gets DEADLINE_EXCEEDED, whichever
// side notices first. One that would have missed the target of its service does not.
func TestOwnDeadline(t *testing.T) {
	f := &fake{}
	r := start(t, f, testLimits())
	hopeless := query.Unavailable(query.ReasonCannotFinish, "it would have ended after its deadline")
	f.fail(hopeless)
	_, err := r.client.ModelInfer(context.Background(), typedRequest("1"))
	wants(t, "the target of the service", err, codes.Unavailable, "ended after")
	_, err = r.client.ModelInfer(r.context(), typedRequest("1")) // within less than the target
	wants(t, "the call's own deadline", err, codes.DeadlineExceeded, "ended after")
	q := typedRequest("1")
	q.Parameters = named("timeout", int64(1000))
	_, err = r.client.ModelInfer(context.Background(), q)
	wants(t, "the parameter", err, codes.DeadlineExceeded, "ended after")

	x := &exchange{}
	ctx, cancel := context.WithDeadline(context.Background(), time.Now().Add(-time.Second))
	defer cancel()
	x.ctx = ctx
	if cancelled := (&query.Error{Reason: query.ReasonCancelled}); !x.ranOut(cancelled) {
		t.Error("a call whose deadline has passed counts as cancelled by its client")
	}
	gone, leave := context.WithCancel(context.Background())
	leave()
	x.ctx = gone
	if cancelled := (&query.Error{Reason: query.ReasonCancelled}); x.ranOut(cancelled) {
		t.Error("a client that has left counts as out of time")
	}
}

func TestConnectionLimit(t *testing.T) {
	l := testLimits()
	l.Connections = 1
	r := start(t, &fake{}, l)
	if _, err := r.client.ServerLive(r.context(), &inference.ServerLiveRequest{}); err != nil {
		t.Fatal(err)
	}
	second := r.dial()
	defer second.Close()
	client := inference.NewGRPCInferenceServiceClient(second)
	_, err := client.ServerMetadata(r.context(), &inference.ServerMetadataRequest{})
	wants(t, "second connection", err, codes.Unavailable, "too many connections")
	if _, err := client.ServerReady(r.context(), &inference.ServerReadyRequest{}); err != nil {
		t.Errorf("a probe: %v", err)
	}
	second.Close()
	r.conn.Close()
	eventually(t, "room for another", func() bool { return r.server.queries.Connections.Used() == 0 })
	third := r.dial()
	defer third.Close()
	if _, err := inference.NewGRPCInferenceServiceClient(third).ServerLive(r.context(), &inference.ServerLiveRequest{}); err != nil {
		t.Errorf("after the first is gone: %v", err)
	}
}

// A call whose request does not come is ended, and one whose request has come
// is not.
func TestReadTimeout(t *testing.T) {
	l := testLimits()
	l.ReadTimeout = 50 * time.Millisecond
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, l)
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.ModelInfer(r.context(), typedRequest("1"))
		answered <- err
	}()
	eventually(t, "the query to run", func() bool { n, _, _ := f.counts(); return n == 1 })
	quiet, err := r.conn.NewStream(r.context(), &grpc.StreamDesc{ClientStreams: true}, inference.GRPCInferenceService_ModelInfer_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	wants(t, "no request", quiet.RecvMsg(&inference.ModelInferResponse{}), codes.DeadlineExceeded, "limits.read_timeout")
	if got := quiet.Trailer().Get(reasonTrailer); len(got) != 1 || got[0] != query.ReasonTimeout {
		t.Errorf("the trailer has %q", got)
	}
	close(f.hold)
	if err := <-answered; err != nil {
		t.Errorf("a query that takes longer than its request may: %v", err)
	}
}

// Shutdown lets what was accepted finish, and takes nothing more.
func TestShutdownAnswers(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, testLimits())
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.ModelInfer(r.context(), typedRequest("1"))
		answered <- err
	}()
	eventually(t, "the query to run", func() bool { n, _, _ := f.counts(); return n == 1 })
	stopped := make(chan error, 1)
	go func() { stopped <- r.stop(patience) }()
	<-r.server.stopping
	eventually(t, "the listener to be closed", func() bool {
		c, err := net.Dial("tcp", r.address)
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	close(f.hold)
	if err := <-answered; err != nil {
		t.Errorf("the query: %v", err)
	}
	if err := <-stopped; err != nil {
		t.Errorf("stopping: %v", err)
	}
}

// A request that has not come does not hold the daemon up until read_timeout.
func TestUnsentRequestsDoNotHoldShutdown(t *testing.T) {
	l := testLimits()
	l.ReadTimeout = time.Hour
	r := start(t, &fake{}, l)
	quiet, err := r.conn.NewStream(r.context(), &grpc.StreamDesc{ClientStreams: true}, inference.GRPCInferenceService_ModelInfer_FullMethodName)
	if err != nil {
		t.Fatal(err)
	}
	s := r.stream(r.context()) // which has sent nothing either
	eventually(t, "the calls to begin", func() bool { return r.server.queries.Memory.Used() >= 2*openBytes })
	if err := r.stop(patience); err != nil {
		t.Errorf("stopping: %v", err)
	}
	wants(t, "no request", quiet.RecvMsg(&inference.ModelInferResponse{}), codes.Unavailable, "stopping")
	_, err = s.Recv()
	wants(t, "a stream", err, codes.Unavailable, "stopping")
}

// Shutdown does not wait for longer than it may.
func TestShutdownGivesUp(t *testing.T) {
	f := &fake{hold: make(chan struct{})}
	r := start(t, f, testLimits())
	answered := make(chan error, 1)
	go func() {
		_, err := r.client.ModelInfer(r.context(), typedRequest("1"))
		answered <- err
	}()
	eventually(t, "the query to run", func() bool { n, _, _ := f.counts(); return n == 1 })
	if err := r.stop(time.Millisecond); err != context.DeadlineExceeded {
		t.Errorf("stopping: %v", err)
	}
	if err := <-answered; err == nil {
		t.Error("the query was answered with outputs")
	}
}

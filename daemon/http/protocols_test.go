package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
	oip "github.com/overlapd/overlapd/daemon/rpc/inference"
)

// These tests compare both protocols: they read the same queries, within the same
// limits.

// serveQueries serves queries by HTTP until the test ends.
func serveQueries(t testing.TB, q *query.Server, l config.Limits) net.Addr {
	t.Helper()
	e, err := NewEndpoint(l, Options{Queries: q})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := access.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		e.Shutdown(ctx)
		ln.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	return ln.Addr()
}

// patient returns a context that a test cannot outlast.
func patient(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// remoteInput is an input of a request.
type remoteInput struct {
	name, datatype string
	shape          []int64
	data           []byte
}

func remoteRequest(model string, inputs ...remoteInput) *oip.ModelInferRequest {
	r := &oip.ModelInferRequest{ModelName: model}
	for _, in := range inputs {
		r.Inputs = append(r.Inputs, &oip.ModelInferRequest_InferInputTensor{Name: in.name, Datatype: in.datatype, Shape: in.shape})
		r.RawInputContents = append(r.RawInputContents, in.data)
	}
	return r
}

func usec(n int64) *oip.InferParameter {
	return &oip.InferParameter{ParameterChoice: &oip.InferParameter_Int64Param{Int64Param: n}}
}

// serveRemote serves queries by gRPC until the test ends, and returns a client.
func serveRemote(t testing.TB, q *query.Server, l config.Limits) oip.GRPCInferenceServiceClient {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := rpc.New(q, l, nil)
	served := make(chan error, 1)
	go func() { served <- r.Serve(ln) }()
	c, err := grpc.NewClient(ln.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(r.Shutdown(ctx), <-served); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	return oip.NewGRPCInferenceServiceClient(c)
}

// The call of a gRPC query is the call of the same query over HTTP.
func TestRemoteCallIsTheSame(t *testing.T) {
	f := newBackend(t)
	q1 := queriesOf(f, testLimits())
	a, err := http.Post("http://"+serveQueries(t, q1, testLimits()).String()+"/v2/models/linked/infer", contentJSON, strings.NewReader(`{"id":"q1","parameters":{"timeout":5000,"priority":2},"inputs":[
		{"name":"C","datatype":"FP32","shape":[1,4],"data":[0,0,0,0]},
		{"name":"A","datatype":"INT64","shape":[1,2],"data":[1,0]},
		{"name":"B","datatype":"INT64","shape":[1,2],"data":[0,0]}]}`))
	if err != nil || a.StatusCode != 200 {
		t.Fatalf("%+v, %v", a, err)
	}
	a.Body.Close()
	want := f.Mu.Last
	client := serveRemote(t, q1, testLimits())
	q := remoteRequest("linked",
		remoteInput{"C", "FP32", []int64{1, 4}, make([]byte, 16)},
		remoteInput{"A", "INT64", []int64{1, 2}, append([]byte{1}, make([]byte, 15)...)},
		remoteInput{"B", "INT64", []int64{1, 2}, make([]byte, 16)})
	q.Id, q.Parameters = "q1", map[string]*oip.InferParameter{"timeout": usec(5000), "priority": usec(2)}
	if _, err := client.ModelInfer(patient(t), q); err != nil {
		t.Fatal(err)
	}
	f.Mu.Lock()
	got := f.Mu.Last
	f.Mu.Unlock()
	if string(got.ID) != "q1" || got.Service != want.Service || got.Size != want.Size || got.SeqLen != want.SeqLen || got.Shape != want.Shape ||
		got.Timeout != want.Timeout || got.Priority != want.Priority || len(got.Inputs) != len(want.Inputs) {
		t.Fatalf("got %+v, want %+v", &got, &want)
	}
	for i := range want.Inputs {
		g, w := &got.Inputs[i], &want.Inputs[i]
		if g.Type != w.Type || g.Offset != w.Offset || !bytes.Equal(g.Data, w.Data) {
			t.Errorf("input %d: got %+v, want %+v", i, g, w)
		}
	}
}

func TestRemoteDeadlines(t *testing.T) {
	f := newBackend(t)
	client := serveRemote(t, queriesOf(f, testLimits()), testLimits())
	q := remoteRequest("echo_UINT8", remoteInput{"X", "UINT8", []int64{1, 1}, []byte{1}})
	for name, c := range map[string]struct {
		parameter int64         // microseconds
		call      time.Duration // of the context
		most      time.Duration
		least     time.Duration
	}{
		"none":               {0, 0, 0, 0},
		"parameter":          {5000, 0, 5 * time.Millisecond, 5 * time.Millisecond},
		"call":               {0, time.Hour, time.Hour, 59 * time.Minute},
		"call, parameter":    {5000, time.Hour, 5 * time.Millisecond, 5 * time.Millisecond},
		"parameter is later": {int64(2 * time.Hour / time.Microsecond), time.Hour, time.Hour, 59 * time.Minute},
	} {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		if c.call > 0 {
			ctx, cancel = context.WithTimeout(ctx, c.call)
		}
		q.Parameters = nil
		if c.parameter > 0 {
			q.Parameters = map[string]*oip.InferParameter{"timeout": usec(c.parameter)}
		}
		_, err := client.ModelInfer(ctx, q)
		cancel()
		f.Mu.Lock()
		got := f.Mu.Last.Timeout
		f.Mu.Unlock()
		if err != nil || got > c.most || got < c.least {
			t.Errorf("%s: %v, the call has %v", name, err, got)
		}
	}
}

// What a request asks for that there is not is refused before the backend has it, and an
// error of the backend is told without its text.
func TestRemoteRefuses(t *testing.T) {
	f := newBackend(t)
	client := serveRemote(t, queriesOf(f, testLimits()), testLimits())
	one := remoteInput{"X", "FP32", []int64{1, 1}, make([]byte, 4)}
	version := remoteRequest("echo_FP32", one)
	version.ModelVersion = "2"
	id := remoteRequest("echo_FP32", one)
	id.Id = "a\nb"
	output := func(names ...string) *oip.ModelInferRequest {
		q := remoteRequest("echo_FP32", one)
		for _, n := range names {
			q.Outputs = append(q.Outputs, &oip.ModelInferRequest_InferRequestedOutputTensor{Name: n})
		}
		return q
	}
	wants := func(name string, q *oip.ModelInferRequest, code codes.Code) {
		t.Helper()
		if a, err := client.ModelInfer(patient(t), q); status.Code(err) != code {
			t.Errorf("%s: %v, %v; want %v", name, a, err, code)
		}
	}
	wants("no such model", remoteRequest("none", one), codes.NotFound)
	wants("not loaded", remoteRequest("unloaded", one), codes.Unavailable)
	wants("no such version", version, codes.NotFound)
	wants("no input", remoteRequest("echo_FP32"), codes.InvalidArgument)
	wants("unknown input", remoteRequest("echo_FP32", remoteInput{"Z", one.datatype, one.shape, one.data}), codes.InvalidArgument)
	wants("twice", remoteRequest("echo_FP32", one, one), codes.InvalidArgument)
	wants("rank 9", remoteRequest("echo_FP32", remoteInput{"X", "FP32", []int64{1, 1, 1, 1, 1, 1, 1, 1, 1}, one.data}), codes.InvalidArgument)
	wants("negative", remoteRequest("echo_FP32", remoteInput{"X", "FP32", []int64{-1, -1}, one.data}), codes.InvalidArgument)
	wants("too few bytes", remoteRequest("echo_FP32", remoteInput{"X", "FP32", one.shape, one.data[:3]}), codes.InvalidArgument)
	wants("text cut off", remoteRequest("echo_BYTES", remoteInput{"X", "BYTES", one.shape, []byte{255, 255, 255, 255, 0}}), codes.InvalidArgument)
	wants("id", id, codes.InvalidArgument)
	wants("unknown output", output("Z"), codes.InvalidArgument)
	wants("output twice", output("Y", "Y"), codes.InvalidArgument)
	wants("output", output("Y"), codes.OK)
	var secret error = errors.New("secret: /path")
	f.Refuse.Store(&secret)
	wants("an error of the backend", output("Y"), codes.Internal)
	f.Mu.Lock()
	defer f.Mu.Unlock()
	if f.Mu.Out != 0 {
		t.Errorf("%d pieces of memory are out", f.Mu.Out)
	}
	if n := f.List[1].Stats.Counts().Fail.Count; n != 1 {
		t.Errorf("%d failed, want 1: the others were not accepted", n)
	}
}

// Both protocols have one budget of memory, and together no more than it, and one
// limit on connections.
func TestProtocolsShareLimits(t *testing.T) {
	l := testLimits()
	l.RequestBytes, l.MemoryBytes, l.Connections = 4<<20, 12<<20, 2
	f := newBackend(t)
	q := queriesOf(f, l)
	address := serveQueries(t, q, l).String()
	client := serveRemote(t, q, l)
	large := remoteRequest("echo_UINT8", remoteInput{"X", "UINT8", []int64{1, 3 << 20}, make([]byte, 3<<20)})

	// A query over gRPC, which is held until it is answered, and a body over HTTP
	// that does not come to its end.
	f.Hold.Store(true)
	answered := make(chan error, 1)
	go func() {
		_, err := client.ModelInfer(patient(t), large)
		answered <- err
	}()
	f.WaitHeld(1)
	begin := fmt.Sprintf("POST /v2/models/echo_UINT8/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", 4<<20)
	half, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	if _, err := half.Write(append([]byte(begin), make([]byte, 3<<20)...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both to be accounted", func() bool { return q.Memory.Used() >= 7<<20 })
	_, err = client.ModelInfer(patient(t), large)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "limits.memory_bytes") {
		t.Errorf("a third request: %v", err)
	}
	if used := q.Memory.Used(); used > l.MemoryBytes {
		t.Errorf("%d bytes are accounted, the limit is %d", used, l.MemoryBytes)
	}
	third, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer third.Close()
	if _, err := third.Write([]byte("GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(third); !strings.Contains(string(text), query.ReasonConnections) {
		t.Errorf("a third connection: %q", text)
	}
	half.Close()
	eventually(t, "the body to be given back", func() bool { return q.Memory.Used() < 4<<20 && q.Connections.Used() == 1 })
	f.Hold.Store(false)
	f.AnswerHeld(f.Run)
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if _, err := client.ModelInfer(patient(t), large); err != nil {
		t.Errorf("when there is room again: %v", err)
	}
	eventually(t, "everything to be given back", func() bool { return q.Memory.Used() == 0 })
}

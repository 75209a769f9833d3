package http

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc"
	oip "github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/daemon/text"
)

// These tests compare both protocols: they read the same queries, within the same
// limits.

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

// serveRemote serves queries by gRPC until the test ends, and returns a client.
func serveRemote(t testing.TB, q *query.Server, l config.Limits) oip.GRPCInferenceServiceClient {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := rpc.New(q, text.New(q, nil), l, nil)
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
	f := serve(t, testLimits())
	a := f.infer("linked", `{"id":"q1","parameters":{"timeout":5000,"priority":2},"inputs":[
		{"name":"C","datatype":"FP32","shape":[1,4],"data":[0,0,0,0]},
		{"name":"A","datatype":"INT64","shape":[1,2],"data":[1,0]},
		{"name":"B","datatype":"INT64","shape":[1,2],"data":[0,0]}]}`)
	if a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	want := f.Mu.Last
	client := serveRemote(t, f.endpoint.gate.queries, testLimits())
	q := remoteRequest("linked",
		remoteInput{"C", "FP32", []int64{1, 4}, make([]byte, 16)},
		remoteInput{"A", "INT64", []int64{1, 2}, append([]byte{1}, make([]byte, 15)...)},
		remoteInput{"B", "INT64", []int64{1, 2}, make([]byte, 16)})
	number := func(n int64) *oip.InferParameter {
		return &oip.InferParameter{ParameterChoice: &oip.InferParameter_Int64Param{Int64Param: n}}
	}
	q.Id, q.Parameters = "q1", map[string]*oip.InferParameter{"timeout": number(5000), "priority": number(2)}
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

// Texts have the same answers over gRPC as over HTTP, as raw bytes and as contents.
func TestRemoteTexts(t *testing.T) {
	s := texting(t)
	client := serveRemote(t, s.endpoint.gate.queries, testLimits())
	ask := func(model string, shape []int64, texts ...string) (*oip.ModelInferResponse, error) {
		q := remoteRequest(model, remoteInput{"text", "BYTES", shape, nil})
		q.RawInputContents[0] = nil
		contents := &oip.InferTensorContents{}
		for _, text := range texts {
			q.RawInputContents[0] = append(q.RawInputContents[0], bytesElement(text)...)
			contents.BytesContents = append(contents.BytesContents, []byte(text))
		}
		raw, err := client.ModelInfer(patient(t), q)
		q.RawInputContents, q.Inputs[0].Contents = nil, contents
		typed, typedErr := client.ModelInfer(patient(t), q)
		if status.Code(err) != status.Code(typedErr) || !proto.Equal(raw, typed) {
			t.Errorf("%s: raw %v, %v, typed %v, %v", model, raw, err, typed, typedErr)
		}
		return raw, err
	}
	out, err := ask("enc", []int64{2}, "a", "b c")
	if err != nil || len(out.Outputs) != 1 || out.Outputs[0].Name != "embedding" || !slices.Equal(out.Outputs[0].Shape, []int64{2, 4}) ||
		math.Float32frombits(binary.LittleEndian.Uint32(out.RawOutputContents[0][16:])) != 2 {
		t.Errorf("embeddings: %v, %v", out, err)
	}
	out, err = ask("rank", []int64{2, 2}, "a", "b", "a", "~")
	if err != nil || len(out.Outputs) != 2 || out.Outputs[0].Name != "labels" || out.Outputs[1].Name != "scores" || !bytes.HasPrefix(out.RawOutputContents[0], bytesElement("LABEL_0")) {
		t.Errorf("pairs: %v, %v", out, err)
	}
	for _, c := range []struct {
		shape []int64
		texts []string
		want  string
	}{
		{[]int64{1, 3}, []string{"a", "b", "c"}, "for pairs"}, {[]int64{2}, []string{"a"}, "elements"}, {[]int64{1}, []string{"\xff"}, "not UTF-8"},
	} {
		if _, err := ask("enc", c.shape, c.texts...); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), c.want) {
			t.Errorf("shape %v: %v, want %q", c.shape, err, c.want)
		}
	}
	s.settle()
}

// Both protocols have one budget of memory, and together no more than it, and one
// limit on connections.
func TestProtocolsShareLimits(t *testing.T) {
	l := testLimits()
	l.RequestBytes, l.MemoryBytes, l.Connections = 4<<20, 12<<20, 2
	f := serve(t, l)
	q := f.endpoint.gate.queries
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
	half := f.dial()
	if _, err := half.Write(append([]byte(begin), make([]byte, 3<<20)...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "both to be accounted", func() bool { return q.Memory.Used() >= 7<<20 })
	_, err := client.ModelInfer(patient(t), large)
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "limits.memory_bytes") {
		t.Errorf("a third request: %v", err)
	}
	if used := q.Memory.Used(); used > l.MemoryBytes {
		t.Errorf("%d bytes are accounted, the limit is %d", used, l.MemoryBytes)
	}
	third := f.dial()
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

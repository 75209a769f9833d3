package rpc

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/models"
)

// patience bounds every wait: only what hangs gets there.
const patience = 20 * time.Second

// fake is a Host with one service, "echo", whose outputs are its inputs, and
// one that is not loaded, "absent".
type fake struct {
	mu struct {
		sync.Mutex
		down    bool
		queries []Query
		fault   error
		running int
		most    int // running at once
		asked   int // how often Models was called
	}
	hold chan struct{} // if not nil, queries wait until it is closed or they are cancelled
}

func (f *fake) Live() bool { return true }

func (f *fake) Ready() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.mu.down
}

func (f *fake) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.down = down
}

func (f *fake) Identity() Identity {
	return Identity{Name: "overlapd", Version: "test", Extensions: []string{"statistics"}}
}

func (f *fake) Models() []Model {
	ports := []query.Port{
		{Name: "X", Type: models.Float32, Dims: []int64{-1, 4}},
		{Name: "T", Type: models.String, Dims: []int64{-1, 1}},
	}
	return []Model{
		{
			Name: "echo", Version: "1", Ready: f.Ready(), Loaded: true, Platform: "onnxruntime_onnx", Inputs: ports, Outputs: ports[:1],
			Batched: true, MaxBatch: 8, Merged: true, Parameters: map[string]string{"qos_target_us": "1000"},
			Stats: query.Counts{Last: time.UnixMilli(1234), Queries: 7, Executions: 5, Success: query.Total{Count: 3, Took: 30}, Queue: query.Total{Count: 3, Took: 9}},
		},
		{Name: "absent", Version: "1"},
		{Name: "free", Version: "1", Ready: true, Loaded: true, Inputs: []query.Port{{Name: "X", Type: models.Float16, AnyRank: true}}},
	}
}

func (f *fake) Infer(ctx context.Context, q *Query) (Answer, error) {
	f.mu.Lock()
	f.mu.queries = append(f.mu.queries, *q)
	f.mu.running++
	f.mu.most = max(f.mu.most, f.mu.running)
	fault := f.mu.fault
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.mu.running--
	}()
	if fault != nil {
		return Answer{}, fault
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return Answer{}, &Fault{Status: 503, Reason: reasonCancelled, Message: "the client left"}
		}
	}
	return Answer{Version: "1", Outputs: q.Inputs}, nil
}

// running returns how many queries the host has at once, now and at most.
func (f *fake) counts() (running, most, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.running, f.mu.most, len(f.mu.queries)
}

func (f *fake) last() Query {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.queries[len(f.mu.queries)-1]
}

func (f *fake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.fault = err
}

// rig is a server on a socket, and a client of it.
type rig struct {
	*fake
	t       testing.TB
	server  *Server
	address string
	conn    *grpc.ClientConn
	client  inference.GRPCInferenceServiceClient
	stopped bool

	credentials credentials.TransportCredentials // of the client
}

func testLimits() Limits {
	return Limits{
		MessageBytes: 1 << 20, MemoryBytes: 16 << 20, HeaderBytes: 16 << 10, Connections: 8,
		ReadTimeout: patience, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
}

func start(t testing.TB, f *fake, l Limits) *rig { return startGuarded(t, f, l, Guard{}, nil) }

// startGuarded starts a server that does not let everybody in, and a client of
// it that trusts as client says.
func startGuarded(t testing.TB, f *fake, l Limits, g Guard, client *tls.Config) *rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{fake: f, t: t, server: New(f, l, g), address: ln.Addr().String(), credentials: insecure.NewCredentials()}
	if client != nil {
		r.credentials = credentials.NewTLS(client)
	}
	served := make(chan error, 1)
	go func() { served <- r.server.Serve(ln) }()
	r.conn = r.dial()
	r.client = inference.NewGRPCInferenceServiceClient(r.conn)
	t.Cleanup(func() {
		r.conn.Close()
		r.stop(patience)
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		eventually(t, "the memory of requests to be given back", func() bool { return r.server.memory.used.Load() == 0 })
		eventually(t, "connections to be counted off", func() bool { return r.server.open.Load() == 0 })
	})
	return r
}

// stop stops the server, which must not take longer than patient.
func (r *rig) stop(patient time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	return r.server.Shutdown(ctx)
}

func (r *rig) dial() *grpc.ClientConn {
	r.t.Helper()
	c, err := grpc.NewClient(r.address, grpc.WithTransportCredentials(r.credentials))
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// context returns a context that a test cannot outlast.
func (r *rig) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	r.t.Cleanup(cancel)
	return ctx
}

// eventually waits for what happens in another goroutine.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("still waiting: %s", what)
}

// typedRequest is a request to "echo" with typed contents.
func typedRequest(id string) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: "echo", Id: id,
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{
			Name: "X", Datatype: "FP32", Shape: []int64{1, 4},
			Contents: &inference.InferTensorContents{Fp32Contents: []float32{1, 2, 3, 4}},
		}},
	}
}

// rawRequest is a request with so many raw bytes.
func rawRequest(bytes int) *inference.ModelInferRequest {
	return &inference.ModelInferRequest{
		ModelName: "echo",
		Inputs: []*inference.ModelInferRequest_InferInputTensor{{
			Name: "X", Datatype: "UINT8", Shape: []int64{int64(bytes)},
		}},
		RawInputContents: [][]byte{make([]byte, bytes)},
	}
}

func parameter(v any) *inference.InferParameter {
	switch v := v.(type) {
	case bool:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: v}}
	case int64:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: v}}
	case uint64:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_Uint64Param{Uint64Param: v}}
	case string:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: v}}
	}
	return &inference.InferParameter{}
}

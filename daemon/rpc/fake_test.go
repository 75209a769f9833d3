package rpc

import (
	"bytes"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/overlapd/overlapd/daemon/access"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/daemon/query"
	"github.com/overlapd/overlapd/daemon/rpc/inference"
	"github.com/overlapd/overlapd/daemon/text"
	"github.com/overlapd/overlapd/models"
)

// firstBytes is what query.Body takes before any of a large request has come.
const firstBytes = 1 << 20

// patience bounds every wait: only what hangs gets there.
const patience = 20 * time.Second

// fake is a backend, and the host, of services whose outputs are their inputs:
// "echo" takes numbers and "bytes" and "half" take what their names say; "absent"
// is not loaded.
type fake struct {
	load func(service, form string) string // query.Server.Load

	mu struct {
		sync.Mutex
		down    bool
		calls   []query.Call // with copies of their inputs
		fault   error
		running map[*query.Call]chan struct{} // closed when its client has left
		most    int                           // running at once
		answer  []byte                        // of the first output, if not nil
	}
	list []*query.Service
	hold chan struct{} // if not nil, queries wait until it is closed or they are cancelled
}

// services makes the services, once.
func (f *fake) services(t testing.TB) {
	f.mu.running = make(map[*query.Call]chan struct{})
	add := func(name string, inputs, outputs []models.TensorSpec) {
		s := query.NewService(models.ServiceID(len(f.list)), name)
		s.QoSTarget, s.QueueLimit, s.Policy, s.MaxBatch, s.MaxQueryBatch, s.Backend = time.Minute, 9, "edf", 2, 8, f
		if inputs != nil {
			i := query.Info{Inputs: inputs, Outputs: outputs, Platform: query.OnnxPlatform, Device: "cpu", Operators: 2, Hash: "abc"}
			if err := s.Loaded(i); err != nil {
				t.Fatal(err)
			}
			s.SetReady(true)
		}
		f.list = append(f.list, s)
	}
	free := func(name string, typ models.DataType) models.TensorSpec {
		return models.TensorSpec{Name: name, Type: models.Type{Kind: models.KindTensor, Elem: typ}}
	}
	batched := func(name string, typ models.DataType, width int64) models.TensorSpec {
		return models.TensorSpec{Name: name, Type: models.TensorType(typ, models.Dim{Value: -1, Name: "n"}, models.Dim{Value: width})}
	}
	x := batched("X", models.Float32, 4)
	add("echo", []models.TensorSpec{x}, []models.TensorSpec{x})
	add("absent", nil, nil)
	add("pair", []models.TensorSpec{x, batched("T", models.String, 1)}, []models.TensorSpec{x})
	add("bytes", []models.TensorSpec{free("X", models.Uint8)}, []models.TensorSpec{free("X", models.Uint8)})
	half := []models.TensorSpec{free("H", models.Float16), free("X", models.Float32)}
	add("half", half, half)
	add("varied", []models.TensorSpec{x}, []models.TensorSpec{x})
	f.list[len(f.list)-1].Variants = []query.Variant{{Name: "fast", Accuracy: 76.13}, {Name: "best", Accuracy: 78.31}}
}

func (f *fake) Services() []*query.Service { return f.list }

func (f *fake) Service(name []byte) *query.Service {
	for _, s := range f.list {
		if s.Name == string(name) {
			return s
		}
	}
	return nil
}

func (f *fake) Live() bool { return true }

func (f *fake) NotReady() *query.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.down {
		return query.ErrDrained
	}
	return nil
}

func (f *fake) setDown(down bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.down = down
	f.list[0].SetReady(!down)
}

func (f *fake) Alloc(_ *query.Service, bytes int64) (query.Memory, error) {
	return query.Memory{Bytes: make([]byte, bytes)}, nil
}

func (f *fake) Free(*query.Service, query.Memory) {}

func (f *fake) Release(*query.Call) {}

func (f *fake) Submit(c *query.Call) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := query.Call{ID: bytes.Clone(c.ID), Timeout: c.Timeout}
	var outputs []models.Tensor
	for i := range c.Inputs {
		seen.Inputs = append(seen.Inputs, models.Tensor{Data: bytes.Clone(c.Inputs[i].Data)})
		if i < len(c.Signature.Outputs) {
			outputs = append(outputs, c.Inputs[i])
		}
	}
	if f.mu.answer != nil {
		outputs[0].Data = f.mu.answer
	}
	f.mu.calls = append(f.mu.calls, seen)
	if f.mu.fault != nil {
		return f.mu.fault
	}
	left := make(chan struct{})
	f.mu.running[c] = left
	f.mu.most = max(f.mu.most, len(f.mu.running))
	go func() {
		r := query.Reply{Outputs: outputs, Queue: 9, Compute: 20}
		for i, v := range c.Service.Variants {
			if r.Variant == "" && (c.Variant == i || c.Variant < 0 && v.Accuracy >= c.LeastAccuracy) {
				r.Variant = v.Name
			}
		}
		if f.hold != nil {
			select {
			case <-f.hold:
			case <-left:
				r = query.Reply{Err: query.Unavailable(query.ReasonCancelled, "the client disconnected")}
			}
		}
		f.mu.Lock()
		delete(f.mu.running, c)
		f.mu.Unlock()
		c.Answer(r)
	}()
	return nil
}

func (f *fake) Cancel(c *query.Call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if left, ok := f.mu.running[c]; ok {
		close(left)
	}
}

// counts returns how many queries the backend has at once, now and at most.
func (f *fake) counts() (running, most, all int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.running), f.mu.most, len(f.mu.calls)
}

func (f *fake) last() query.Call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.calls[len(f.mu.calls)-1]
}

func (f *fake) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.fault = err
}

// setAnswer has queries answered with this as their first output, nil for the input.
func (f *fake) setAnswer(data []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.answer = data
}

// rig is a server on a socket, and a client of it.
type rig struct {
	*fake
	t       testing.TB
	server  *Server
	address string
	conn    *grpc.ClientConn
	client  inference.GRPCInferenceServiceClient

	credentials credentials.TransportCredentials // of the client
}

func testLimits() config.Limits {
	return config.Limits{
		RequestBytes: 1 << 20, MemoryBytes: 16 << 20, HeaderBytes: 16 << 10, Connections: 32,
		ReadTimeout: patience, WriteTimeout: time.Minute, IdleTimeout: time.Minute,
	}
}

func start(t testing.TB, f *fake, l config.Limits) *rig { return startGuarded(t, f, l, nil, nil) }

// startGuarded starts a server that does not let everybody in, and a client of
// it that trusts as client says.
func startGuarded(t testing.TB, f *fake, l config.Limits, a *access.Access, client *tls.Config) *rig {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.services(t)
	q := &query.Server{
		Host: f, Memory: query.NewBudget(l.MemoryBytes), Connections: query.NewPlaces(l.Connections),
		Version: "test", Load: f.load,
	}
	r := &rig{fake: f, t: t, server: New(q, text.New(q, nil), l, a), address: ln.Addr().String(), credentials: insecure.NewCredentials()}
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
		eventually(t, "the memory of requests to be given back", func() bool { return r.server.queries.Memory.Used() == 0 })
		eventually(t, "connections to be counted off", func() bool { return r.server.queries.Connections.Used() == 0 })
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
		ModelName: "bytes",
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
	case float64:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_DoubleParam{DoubleParam: v}}
	case string:
		return &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: v}}
	}
	return &inference.InferParameter{}
}

package test

import (
	"context"
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// grpcAddress returns where a daemon that listens for gRPC does.
func (p *process) grpcAddress() string {
	p.t.Helper()
	return p.await("where it listens for gRPC", func(e event) bool { return e.Message == "listening for gRPC" }).Address
}

// grpcClient returns a client of a daemon.
func (p *process) grpcClient(t testing.TB) inference.GRPCInferenceServiceClient {
	t.Helper()
	c, err := grpc.NewClient(p.grpcAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return inference.NewGRPCInferenceServiceClient(c)
}

// limited returns a context that no test outlasts.
func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// grpcAdd is a query of tiny_add whose sums are 2v.
func grpcAdd(v int32) *inference.ModelInferRequest {
	r := &inference.ModelInferRequest{ModelName: "add"}
	for _, name := range []string{"INPUT0", "INPUT1"} {
		r.Inputs = append(r.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: name, Datatype: "INT32", Shape: []int64{1, 16}})
		var data []byte
		for range 16 {
			data = binary.LittleEndian.AppendUint32(data, uint32(v))
		}
		r.RawInputContents = append(r.RawInputContents, data)
	}
	return r
}

// The same daemon answers both protocols, and counts both together.
func TestGRPC(t *testing.T) {
	t.Parallel()
	p := serve(t, config{grpc: "127.0.0.1:0", services: []service{{name: "add", model: "zoo:tiny_add"}}})
	client := p.grpcClient(t)
	const n = 20
	for i := range int32(n) {
		a, err := client.ModelInfer(limited(t), grpcAdd(i))
		if err != nil || len(a.RawOutputContents) != 2 || binary.LittleEndian.Uint32(a.RawOutputContents[0]) != uint32(2*i) {
			t.Fatalf("query %d: %v, %v", i, a, err)
		}
	}
	typed := grpcAdd(0)
	typed.RawInputContents = nil
	for _, in := range typed.Inputs {
		in.Contents = &inference.InferTensorContents{IntContents: slices.Repeat([]int32{3}, 16)}
	}
	if a, err := client.ModelInfer(limited(t), typed); err != nil || len(a.RawOutputContents) != 2 || binary.LittleEndian.Uint32(a.RawOutputContents[0]) != 6 {
		t.Errorf("typed contents: %v, %v", a, err)
	}
	if s := p.stats("add"); s.Times["success"].Count != n+1 {
		t.Errorf("over HTTP, %d queries are counted, want %d", s.Times["success"].Count, n+1)
	}
}

// A client that gives up frees its query: where it runs it stops, and no
// further span of it is sent, so its batch never ends.
func TestGRPCCancels(t *testing.T) {
	t.Parallel()
	p := serve(t, config{grpc: "127.0.0.1:0", services: []service{slowService(t, "")}})
	client := p.grpcClient(t)
	q := &inference.ModelInferRequest{ModelName: "slow", Inputs: []*inference.ModelInferRequest_InferInputTensor{}}
	for _, in := range one(2).Inputs {
		var data []byte
		for _, v := range in.Data {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(v)))
		}
		q.Inputs = append(q.Inputs, &inference.ModelInferRequest_InferInputTensor{Name: in.Name, Datatype: in.Datatype, Shape: in.Shape})
		q.RawInputContents = append(q.RawInputContents, data)
	}
	begin := time.Now()
	if _, err := client.ModelInfer(limited(t), q); err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	// How fast the machine is now is anybody's guess: some may end before
	// their client leaves, and some may not come before it does.
	const enough, tries = 3, 50
	given := 0
	for n := 1; n <= tries && given < enough; n++ {
		ctx, cancel := context.WithCancel(limited(t))
		leaves := time.AfterFunc(took/8, cancel)
		_, err := client.ModelInfer(ctx, q)
		leaves.Stop()
		cancel()
		if err != nil && status.Code(err) != codes.Canceled {
			t.Fatal(err)
		}
		p.eventually("the query to end", func() bool {
			s := p.stats("slow")
			given = s.Times["fail"].Count
			return float64(given+s.Times["success"].Count) == p.metrics()[`overlapd_queries_accepted_total{service="slow"}`]
		})
	}
	s := p.stats("slow")
	answered := s.Times["success"].Count
	if given < enough || s.Executions >= answered+given {
		t.Errorf("%d queries were given up, %d answered, and %d batches ran to their end", given, answered, s.Executions)
	}
}

package test

import (
	"slices"
	"testing"
	"time"
)

// BenchmarkProtocols compares the two protocols on the smallest model, one
// query at a time and in turns, so that both see the same machine. It reports
// the median of each in microseconds.
func BenchmarkProtocols(b *testing.B) {
	p := serve(b, config{grpc: "127.0.0.1:0", services: []service{{name: "add", model: "zoo:tiny_add"}}})
	client := p.grpcClient(b)
	ctx := limited(b)
	request := grpcAdd(1)
	q := query{}
	for _, name := range []string{"INPUT0", "INPUT1"} {
		q.Inputs = append(q.Inputs, tensor{Name: name, Shape: []int64{1, 16}, Datatype: "INT32", Data: make([]float64, 16)})
	}
	var http, rpc []time.Duration
	for b.Loop() {
		begin := time.Now()
		if a := p.inferBinary("add", q); a.Status != 200 {
			b.Fatal(a)
		}
		http = append(http, time.Since(begin))
		begin = time.Now()
		if _, err := client.ModelInfer(ctx, request); err != nil {
			b.Fatal(err)
		}
		rpc = append(rpc, time.Since(begin))
	}
	b.ReportMetric(median(http), "http-p50-µs")
	b.ReportMetric(median(rpc), "grpc-p50-µs")
}

func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2]) / float64(time.Microsecond)
}

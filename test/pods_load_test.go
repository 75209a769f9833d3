package test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// Three daemons on emulated devices, so slow that not the cores of a small machine are what
// limits them, and the first half as fast as the others, which its predictor does not know.
const (
	podSlow    = 8.0 // times as long as in docs/examples
	podSlowest = 2.0 // times as long as that
)

// podTargets are the services on them. A query is a batch of eight.
var podTargets = map[string]time.Duration{"cnn": 400 * time.Millisecond, "encoder": 640 * time.Millisecond}

// unequalPods starts them.
func unequalPods(t testing.TB) (pods []*process) {
	t.Helper()
	known := slower(t, "synthetic.predictor.json", podSlow)
	for _, factor := range []float64{podSlow * podSlowest, podSlow, podSlow} {
		c := config{grpc: "127.0.0.1:0", tables: fmt.Sprintf("[predictor]\nfile = %q", known), top: fmt.Sprintf(
			"policy = \"overlap\"\nlog_level = \"info\"\ndevice = \"emulated\"\ndevice_profile = %q", slower(t, "synthetic.device.json", factor))}
		for name, target := range podTargets {
			c.services = append(c.services, service{name, "emulated:" + name, fmt.Sprintf("max_batch = 16\ntarget = %q", target)})
		}
		p := serve(t, c)
		p.reaches("serving")
		pods = append(pods, p)
	}
	return pods
}

// offered counts queries that were sent, and those of them that were not answered in time.
type offered struct{ sent, missed atomic.Int64 }

// offer sends queries of both services at random times, so many per second, until the context
// ends, and returns when all are over. Those of the first moments, after begin, do not count.
func (o *offered) offer(ctx context.Context, client inference.GRPCInferenceServiceClient, rate float64, begin time.Time) {
	random := rand.New(rand.NewPCG(1, 2))
	queries := map[string]*inference.ModelInferRequest{}
	for name, in := range map[string]*inference.ModelInferRequest_InferInputTensor{
		"cnn":     {Name: "input", Datatype: "FP32", Shape: []int64{8, 4}},
		"encoder": {Name: "input", Datatype: "INT64", Shape: []int64{8, 128}},
	} {
		bytes := map[string]int64{"FP32": 4, "INT64": 8}[in.Datatype] * in.Shape[0] * in.Shape[1]
		queries[name] = &inference.ModelInferRequest{ModelName: name,
			Inputs: []*inference.ModelInferRequest_InferInputTensor{in}, RawInputContents: [][]byte{make([]byte, bytes)}}
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	for due := time.Now(); ctx.Err() == nil; due = due.Add(time.Duration(random.ExpFloat64() / rate * float64(time.Second))) {
		time.Sleep(time.Until(due))
		name := []string{"cnn", "encoder"}[random.IntN(2)]
		wait.Go(func() {
			limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
			defer cancel()
			_, err := client.ModelInfer(limit, queries[name])
			if due.Before(begin) {
				return
			}
			if o.sent.Add(1); err != nil || time.Since(due) > podTargets[name] {
				o.missed.Add(1)
			}
		})
	}
}

// accepted returns how many queries each has accepted.
func accepted(pods []*process) (counts []int) {
	for _, p := range pods {
		sum := 0.0
		for name := range podTargets {
			sum += p.metrics()[fmt.Sprintf("overlapd_queries_accepted_total{service=%q}", name)]
		}
		counts = append(counts, int(sum))
	}
	return counts
}

// A daemon on a slower device is asked less by a client that follows load reports: half as
// often as the others, where it would be as often.
func TestSlowPodIsAskedLess(t *testing.T) {
	t.Parallel()
	pods := unequalPods(t)
	ctx, cancel := context.WithCancel(t.Context())
	var load sync.WaitGroup
	defer func() {
		cancel()
		load.Wait()
	}()
	client := balanced(t, byReports, grpcAddresses(pods))
	load.Go(func() { new(offered).offer(ctx, client, 20, time.Now()) })
	const enough = 60
	pods[0].eventually("it is asked less", func() bool {
		var by []int
		before := accepted(pods)
		pods[0].eventually("queries", func() bool {
			by = accepted(pods)
			for i := range by {
				by[i] -= before[i]
			}
			return by[0]+by[1]+by[2] >= enough
		})
		return by[0] > 0 && 4*by[0] < by[0]+by[1]+by[2]
	})
}

// With OVERLAPD_TEST_TABLE=1 it logs the table of docs/benchmarks/cluster.md.
func TestBalancersTable(t *testing.T) {
	if os.Getenv("OVERLAPD_TEST_TABLE") == "" {
		t.Skip("it takes ten minutes: OVERLAPD_TEST_TABLE=1 has it run")
	}
	const warm, length = 15 * time.Second, 90 * time.Second
	balancers := map[string]struct {
		before func(t testing.TB, policy string, addresses []string) inference.GRPCInferenceServiceClient
		policy string
	}{
		"gRPC round_robin": {balanced, roundRobin}, "gRPC weighted_round_robin": {balanced, byReports},
		"Envoy round_robin": {throughEnvoy, envoyRoundRobin}, "Envoy least_request": {throughEnvoy, envoyLeastRequest},
		"Envoy client_side_weighted_round_robin": {throughEnvoy, envoyByReports},
		"Envoy the same, by named_metrics":       {throughEnvoy, envoyByReports + ", metric_names_for_computing_utilization: [named_metrics.cnn, named_metrics.encoder]"},
	}
	var mu sync.Mutex
	var lines []string
	t.Run("all", func(t *testing.T) {
		for name, balance := range balancers {
			for _, rate := range []float64{40, 55, 70} {
				t.Run(fmt.Sprintf("%s/%v", name, rate), func(t *testing.T) {
					t.Parallel()
					pods := unequalPods(t)
					client := balance.before(t, balance.policy, grpcAddresses(pods))
					begin := time.Now()
					ctx, cancel := context.WithDeadline(t.Context(), begin.Add(warm+length))
					defer cancel()
					var o offered
					o.offer(ctx, client, rate, begin.Add(warm))
					by := accepted(pods)
					mu.Lock()
					defer mu.Unlock()
					lines = append(lines, fmt.Sprintf("| %s | %v | %.2f | %d : %d : %d |", name, rate,
						100*float64(o.missed.Load())/float64(o.sent.Load()), by[0], by[1], by[2]))
				})
			}
		}
	})
	slices.Sort(lines)
	for _, line := range lines {
		t.Log(line)
	}
}

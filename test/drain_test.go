package test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/overlapd/overlapd/daemon/rpc/inference"
)

// waysToAsk are balancers before daemons that add, for queries whose sums are 2v.
var waysToAsk = map[string]func(t *testing.T, pods []*process) (ask func(v int32) error){
	"http": func(t *testing.T, pods []*process) func(v int32) error {
		ready, over := make([]atomic.Bool, len(pods)), make(chan struct{})
		look := func() {
			for i, p := range pods {
				ready[i].Store(p.health("/v2/health/ready") == 200)
			}
		}
		look()
		var watch sync.WaitGroup
		watch.Go(func() {
			for tick := time.Tick(200 * time.Millisecond); ; look() {
				select {
				case <-tick:
				case <-over:
					return
				}
			}
		})
		t.Cleanup(func() { close(over); watch.Wait() })
		return func(v int32) error {
			for i := range pods {
				if next := (int(v) + i) % len(pods); ready[next].Load() {
					q := sum(rand.New(rand.NewPCG(5, uint64(v))), 1)
					return checkSum(q, pods[next].infer(tinyAdd.name, q))
				}
			}
			return errors.New("no daemon is ready")
		}
	},
	"grpc": func(t *testing.T, pods []*process) func(v int32) error {
		return adds(balanced(t, byReports, grpcAddresses(pods)))
	},
	"envoy": func(t *testing.T, pods []*process) func(v int32) error {
		return adds(throughEnvoy(t, envoyByReports, grpcAddresses(pods)))
	},
}

// adds asks over gRPC.
func adds(client inference.GRPCInferenceServiceClient) func(v int32) error {
	return func(v int32) error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		a, err := client.ModelInfer(ctx, grpcAdd(v))
		if err == nil && (len(a.RawOutputContents) != 2 || binary.LittleEndian.Uint32(a.RawOutputContents[0]) != uint32(2*v)) {
			err = fmt.Errorf("got %v", a)
		}
		return err
	}
}

// Each of three daemons in turn is drained, stopped and replaced under load, with balancers that
// learn late of readiness. No query is lost, and the others answer.
func TestRollingReplacementLosesNothing(t *testing.T) {
	t.Parallel()
	for name, balance := range waysToAsk {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var pods []*process
			for range 3 {
				pods = append(pods, serve(t, administered(t, config{dir: t.TempDir(), grpc: "127.0.0.1:0", services: []service{tinyAdd}})))
			}
			ask := balance(t, slices.Clone(pods)) // those that replace them have their addresses
			var over atomic.Bool
			var answered atomic.Int64
			var load sync.WaitGroup
			defer func() {
				over.Store(true)
				load.Wait()
			}()
			for range 4 {
				load.Go(func() {
					for v := int32(1); !over.Load() && !t.Failed(); v++ {
						if err := ask(v); err != nil {
							t.Errorf("query %d: %v", v, err)
						}
						answered.Add(1)
					}
				})
			}
			for i, p := range pods {
				for _, each := range pods {
					asked := func() int { return each.stats(tinyAdd.name).Times["success"].Count }
					before := asked()
					each.eventually("that it is asked", func() bool { return asked() > before })
				}
				if text, code := p.command("drain", "--config", p.path, "--wait", "--grace", "2s", "--limit", "60s"); code != 0 {
					t.Fatalf("drain: %d, %s", code, text)
				}
				before := answered.Load()
				p.stop()
				pods[(i+1)%len(pods)].eventually("answers of the others", func() bool { return answered.Load() > before+10 || t.Failed() })
				c := p.config
				c.grpc, c.top = p.grpcAddress(), fmt.Sprintf("%s\nlisten = %q", c.top, p.address)
				pods[i] = serve(t, c)
			}
		})
	}
}

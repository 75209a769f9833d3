package test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// A daemon that is drained says that it is not ready and answers queries; it can be had back.
func TestDrainedDaemonAnswers(t *testing.T) {
	t.Parallel()
	p := serve(t, administered(t, config{grpc: "127.0.0.1:0", services: []service{tinyAdd}}))
	conn, err := grpc.NewClient(p.grpcAddress(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	random := rand.New(rand.NewPCG(3, 4))
	check := func(ready bool) {
		t.Helper()
		if status := p.health("/v2/health/ready"); (status == 200) != ready {
			t.Errorf("ready: %d, want %t", status, ready)
		}
		health, err := grpc_health_v1.NewHealthClient(conn).Check(limited(t), &grpc_health_v1.HealthCheckRequest{})
		if err != nil || (health.Status == grpc_health_v1.HealthCheckResponse_SERVING) != ready {
			t.Errorf("%v, %v, want %t", health, err, ready)
		}
		if status := p.health("/v2/health/live"); status != 200 {
			t.Errorf("live: %d", status)
		}
		if a := p.infer(tinyAdd.name, sum(random, 1)); a.Status != 200 {
			t.Error(a)
		}
	}
	for _, step := range []struct {
		flags []string
		ready bool
	}{{nil, false}, {[]string{"--cancel"}, true}, {[]string{"--wait", "--grace", "0s"}, false}, {[]string{"--cancel"}, true}} {
		text, code := p.command(append([]string{"drain", "--config", p.path}, step.flags...)...)
		if code != 0 {
			t.Fatalf("drain %v: %d, %s", step.flags, code, text)
		}
		check(step.ready)
	}
	if text, code := p.command("drain", "--config", p.path, "--wait", "--limit", "1s"); code != 1 {
		t.Errorf("a limit that is too short: %d, %s", code, text)
	}
	p.stop()
	if text, code := p.command("drain", "--config", p.path); code != 1 {
		t.Errorf("nobody there: %d, %s", code, text)
	}
}

// pair is two daemons behind a balancer that looks at readiness now and then.
type pair struct {
	t       *testing.T
	config  [2]config
	daemons [2]*process
	mu      sync.Mutex
	ready   [2]atomic.Bool
	sending [2]atomic.Int64 // queries that are on their way, or about to be
}

// daemon returns a daemon of the pair, which may be another than before.
func (b *pair) daemon(i int) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.daemons[i]
}

// look asks both whether they are ready. Nobody listens where one is replaced.
func (b *pair) look() {
	for i := range b.daemons {
		status := 0
		if p := b.daemon(i); p != nil {
			status = p.health("/v2/health/ready")
		}
		b.ready[i].Store(status == 200)
	}
}

// Each of two daemons in turn is drained, stopped and replaced under load, with a balancer that
// learns late of readiness. No query is lost.
func TestRollingReplacementLosesNothing(t *testing.T) {
	t.Parallel()
	b := &pair{t: t}
	for i := range b.config {
		b.config[i] = administered(t, config{dir: t.TempDir(), services: []service{tinyAdd}})
		b.daemons[i] = serve(t, b.config[i])
	}
	b.look()
	var over atomic.Bool
	var sent atomic.Int64
	var load sync.WaitGroup
	load.Go(func() {
		for !over.Load() {
			time.Sleep(200 * time.Millisecond)
			b.look()
		}
	})
	for client := range 4 {
		load.Go(func() {
			random := rand.New(rand.NewPCG(5, uint64(client)))
			for !over.Load() {
				for i := range b.ready {
					b.sending[i].Add(1)
					if b.ready[i].Load() {
						sent.Add(1)
						if a := b.daemon(i).infer(tinyAdd.name, sum(random, 1)); a.Status != 200 {
							t.Errorf("daemon %d: %v", i, a)
						}
					}
					b.sending[i].Add(-1)
				}
			}
		})
	}
	defer func() {
		over.Store(true)
		load.Wait()
	}()
	for i := range b.daemons {
		before := sent.Load()
		b.daemon(1-i).eventually("both take queries", func() bool { return b.ready[0].Load() && b.ready[1].Load() && sent.Load() > before })
		p := b.daemon(i)
		if text, code := p.command("drain", "--config", p.path, "--wait", "--grace", "2s", "--limit", "60s"); code != 0 {
			t.Fatalf("drain: %d, %s", code, text)
		}
		p.eventually("the balancer has left", func() bool { return !b.ready[i].Load() && b.sending[i].Load() == 0 })
		b.mu.Lock()
		b.daemons[i] = nil
		b.mu.Unlock()
		p.stop()
		next := serve(t, b.config[i])
		b.mu.Lock()
		b.daemons[i] = next
		b.mu.Unlock()
	}
}

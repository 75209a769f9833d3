package test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// restarts makes a service come back at once, as often as a test likes.
const restarts = "backoff_min = \"10ms\"\nbackoff_max = \"50ms\"\nrestart_limit = 1000\n"

// tally counts how queries ended.
type tally struct{ ok, refused, failed, none atomic.Int64 }

func (c *tally) add(a answer) {
	switch {
	case a.Err != nil:
		c.none.Add(1)
	case a.Status == 200:
		c.ok.Add(1)
	case a.Status == 503:
		c.refused.Add(1)
	default:
		c.failed.Add(1)
	}
}

// Killing the worker of one service takes nothing from the other, and every
// query of its own gets one answer, with a reason if it has no outputs.
func TestKilledWorkers(t *testing.T) {
	t.Parallel()
	p := serve(t, config{worker: restarts, services: []service{
		{name: "steady", model: "zoo:tiny_add"}, {"victim", "zoo:tiny_add", "target = \"20s\"\nmax_batch = 4"},
	}})
	kills := max(fewer(20), 8)
	var over atomic.Bool
	var steady, victim tally
	load := make(chan struct{})
	go func() {
		defer close(load)
		crowd(8, func(client int, random *rand.Rand) {
			for !over.Load() {
				q := sum(random, 1)
				if client < 4 {
					a := p.infer("steady", q)
					steady.add(a)
					if err := checkSum(q, a); err != nil {
						t.Errorf("the service that was let alone: %v", err)
						return
					}
					continue
				}
				a := p.inferBinary("victim", q)
				victim.add(a)
				if err := checkSum(q, a); err != nil && !isRefusal(a, 500, "worker_lost") && !isRefusal(a, 503, "worker_lost", "deadline_passed", "cannot_finish", "no_memory") {
					t.Errorf("the service whose worker dies: %v", err)
					return
				}
			}
		})
	}()
	random := rand.New(rand.NewPCG(3, 4))
	last := 0
	for range kills {
		p.eventually("the next worker", func() bool { w := p.worker("victim"); return w != 0 && w != last })
		time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
		last = p.awaitWorker("victim")
		if err := sendSignal(last, syscall.SIGKILL); err != nil {
			t.Errorf("killing worker %d: %v", last, err)
		}
	}
	p.eventually("the last worker", func() bool { w := p.worker("victim"); return w != 0 && w != last })
	p.eventually("readiness", func() bool { return p.health("/v2/health/ready") == 200 })
	over.Store(true)
	<-load
	if err := checkSum(sum(random, 1), answer{}); err == nil {
		t.Error("the check finds nothing wrong with no answer")
	}
	q := sum(random, 2)
	if err := checkSum(q, p.infer("victim", q)); err != nil {
		t.Errorf("after the last restart: %v", err)
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" }); n != kills {
		t.Errorf("%d workers were lost, %d killed", n, kills)
	}
	if steady.ok.Load() == 0 || victim.ok.Load() == 0 {
		t.Error("there was no load")
	}
	t.Logf("steady: %d answered; victim: %d answered, %d failed, %d refused",
		steady.ok.Load(), victim.ok.Load(), victim.failed.Load(), victim.refused.Load())
}

// stopped reports whether no thread of a process can run.
func stopped(t *testing.T, pid int) bool {
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("the threads of process %d: %d, %v", pid, len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// The state follows the name, which may hold parentheses itself.
		if state := text[bytes.LastIndexByte(text, ')')+2]; state != 'T' {
			return false
		}
	}
	return true
}

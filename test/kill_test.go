package test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// A worker that hangs is killed. The query that it hung on is not run again, and
// the next finds another worker.
func TestHangingWorkerIsReplaced(t *testing.T) {
	// Measuring could hang on it first.
	p := serve(t, config{worker: restarts + `span_timeout = "500ms"`, tables: "[profile]\non_start = false", services: []service{
		tinyAdd, {name: "other", model: "zoo:tiny_add"},
	}})
	first := p.awaitWorker("add")
	if err := sendSignal(first, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The signal returns before all threads have seen it, and one that runs on
	// may still answer the query.
	p.eventually("all threads of the worker to stop", func() bool { return stopped(t, first) })
	random := rand.New(rand.NewPCG(5, 6))
	q := sum(random, 1)
	refusedWith(t, p.infer("add", q), 500, "worker_lost")
	p.await("that it hung", func(e event) bool { return e.Message == "worker exited" && e.Service == "add" })
	if err := checkSum(q, p.infer("add", q)); err != nil {
		t.Errorf("the query after it: %v", err)
	}
	if p.worker("add") == first {
		t.Error("the worker was not replaced")
	}
	if err := checkSum(q, p.infer("other", q)); err != nil {
		t.Error(err)
	}
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

// A service whose worker is lost too often says so at once, and when it is tried
// again. The daemon stays ready, unless it is to be so with all services only.
func TestServiceGivenUp(t *testing.T) {
	t.Parallel()
	for ready, status := range map[string]int{"any": 200, "all": 503} {
		t.Run(ready, func(t *testing.T) { giveUp(t, ready, status) })
	}
}

func giveUp(t *testing.T, ready string, want int) {
	t.Parallel()
	p := serve(t, config{top: fmt.Sprintf("ready = %q", ready), worker: "restart_limit = 1\nbackoff_min = \"10ms\"\n", services: []service{
		tinyAdd, {name: "other", model: "zoo:tiny_add"},
	}})
	first := p.awaitWorker("add")
	sendSignal(first, syscall.SIGKILL)
	p.eventually("the second worker", func() bool { w := p.worker("add"); return w != 0 && w != first })
	sendSignal(p.awaitWorker("add"), syscall.SIGKILL)
	p.await("that it is given up", func(e event) bool { return e.Message[:min(len(e.Message), 26)] == "service failed permanently" })
	q := sum(rand.New(rand.NewPCG(7, 8)), 1)
	a := p.infer("add", q)
	refusedWith(t, a, 503, "given_up")
	if again, err := strconv.Atoi(a.Retry); err != nil || again < 2 || !strings.Contains(a.Error, "restarted in") {
		t.Errorf("the client is to come back in %q seconds: %s", a.Retry, a.Error)
	}
	if status := p.health("/v2/health/ready"); status != want {
		t.Errorf("ready is %d, want %d", status, want)
	}
	if err := checkSum(q, p.infer("other", q)); err != nil {
		t.Error(err)
	}
	p.alive()
}

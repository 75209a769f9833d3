package test

import (
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// slowService takes long enough for things to happen while a query runs, and
// is stopped between any two of its operators.
func slowService(t *testing.T, lines string) service {
	return service{"slow", write(t, "slow.onnx", slow(fewer(200))), lines}
}

// Every query that was accepted before SIGTERM is answered, and the daemon
// ends with status 0.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{tinyAdd, {"batched", "zoo:tiny_add", "max_batch = 8"}}})
	var all tally
	var before atomic.Int64
	stopped := make(chan struct{})
	go func() {
		for before.Load() < 200 {
			time.Sleep(time.Millisecond)
		}
		close(stopped) // first: this goroutine may be late to go on, and the daemon is not
		p.signal(syscall.SIGTERM)
	}()
	crowd(12, func(client int, random *rand.Rand) {
		for {
			q := sum(random, 1)
			a := p.infer([]string{"add", "batched"}[client%2], q)
			all.add(a)
			before.Add(1)
			switch {
			case checkSum(q, a) == nil:
			case isRefusal(a, 503, "draining"):
				return
			case a.Err != nil: // the connection or the listener is closed
				select {
				case <-stopped:
				default:
					t.Errorf("before the signal: %v", a)
				}
				return
			default:
				t.Errorf("neither answered nor refused: %v", a)
				return
			}
		}
	})
	if code := p.exit(); code != 0 {
		t.Errorf("exit status %d", code)
	}
	t.Logf("%d answered, %d refused, %d not taken", all.ok.Load(), all.refused.Load(), all.none.Load())
}

// What cannot be answered within the drain timeout is refused, not dropped.
func TestDrainTimeout(t *testing.T) {
	t.Parallel()
	p := serve(t, config{top: `drain_timeout = "50ms"`, services: []service{slowService(t, "")}})
	const clients = 30
	answers := make(chan answer, clients)
	for range clients {
		go func() { answers <- p.infer("slow", one(1)) }()
	}
	p.eventually("the first answer", func() bool { return len(answers) > 0 })
	p.stop()
	refusals := 0
	for range clients {
		switch a := <-answers; {
		case isRefusal(a, 503, "draining"):
			refusals++
		case a.Status != 200:
			t.Errorf("got %v", a)
		}
	}
	if refusals == 0 {
		t.Error("everything was answered within the drain timeout")
	}
}

func TestSecondSignalQuitsAtOnce(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{slowService(t, "")}})
	const clients = 30
	answers := make(chan answer, clients)
	for range clients {
		go func() { answers <- p.infer("slow", one(1)) }()
	}
	p.eventually("the first answer", func() bool { return len(answers) > 0 })
	p.signal(syscall.SIGTERM)
	time.Sleep(300 * time.Millisecond) // two signals at one moment count as one
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 1 {
		t.Errorf("exit status %d", code)
	}
	unanswered := 0
	for range clients {
		if a := <-answers; a.Status != 200 {
			unanswered++
		}
	}
	if unanswered == 0 {
		t.Error("it answered everything first")
	}
	says(t, p.logged(), "quit on a second signal")
}

// Workers do not outlive a daemon that is killed.
func TestKilledDaemonLeavesNoWorker(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{tinyAdd, slowService(t, "")}})
	go p.infer("slow", one(1))
	workers := p.processes()
	if len(workers) != 3 {
		t.Errorf("processes %v, want the daemon and two workers", workers)
	}
	p.signal(syscall.SIGKILL)
	<-p.exited
}

// Workers that are still loading, or waiting to be started again, do not hold
// up the end.
func TestStopWhileLoading(t *testing.T) {
	t.Parallel()
	many := config{worker: `backoff_min = "50s"
backoff_max = "50s"`, services: []service{tinyAdd, slowService(t, "")}}
	p := start(t, many)
	p.stop()
	p = start(t, many)
	pid := p.await("that a worker loads", func(e event) bool { return e.Message == "worker starting" && e.Service == "add" }).PID
	if err := sendSignal(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	p.await("that a worker exited", func(e event) bool { return e.Message == "worker exited" })
	p.stop()
}

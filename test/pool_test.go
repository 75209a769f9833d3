package test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// twoCores returns a pool of the first two cores that this process may use, "" if there
// is but one.
func twoCores(t testing.TB) string {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	var text string
	for core, names := 0, []string{"left", "right"}; len(names) > 0; core++ {
		if core == len(set)*64 {
			return ""
		}
		if set.IsSet(core) {
			text += fmt.Sprintf("[[device]]\nname = %q\nkind = \"cpu\"\ncores = \"%d\"\n", names[0], core)
			names = names[1:]
		}
	}
	return text
}

// workerOn returns the worker of a service on a device that was ready last, 0 if it is
// lost.
func (p *process) workerOn(service, device string) (pid int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.mu.log {
		switch {
		case e.Service != service || e.Device != device:
		case e.Message == "worker ready":
			pid = e.PID
		case (e.Message == "worker exited" || e.Message == "worker stopped") && e.PID == pid:
			pid = 0
		}
	}
	return pid
}

// A service on two cores loses one worker after another to SIGKILL, under load. No query is
// lost, and the workers on the other core stay.
func TestKilledReplicas(t *testing.T) {
	t.Parallel()
	cores := twoCores(t)
	if cores == "" {
		t.Skip("it takes two cores")
	}
	p := serve(t, config{worker: restarts, tables: cores, services: []service{{name: "add", model: "zoo:tiny_add", lines: `target = "60s"`}}})
	p.eventually("both workers", func() bool { return p.workerOn("add", "left") != 0 && p.workerOn("add", "right") != 0 })
	other := p.workerOn("add", "right")
	answered := p.killUnderLoad(func() int { return p.workerOn("add", "left") })
	if answered == 0 || p.workerOn("add", "right") != other {
		t.Errorf("%d queries were answered; the worker on the other core was %d, and is %d", answered, other, p.workerOn("add", "right"))
	}
}

// A service loses the worker of one variant after another to SIGKILL, under load. No query is
// lost: the other variant answers.
func TestKilledVariants(t *testing.T) {
	t.Parallel()
	const variants = "target = \"60s\"\n[[service.variant]]\nname = \"one\"\nmodel = \"zoo:tiny_add\"\naccuracy = 1\n" +
		"[[service.variant]]\nname = \"two\"\nmodel = \"zoo:tiny_add\"\naccuracy = 2\n"
	p := serve(t, config{worker: restarts, services: []service{{name: "add", lines: variants}}})
	p.eventually("both workers", func() bool { return p.worker("add/one") != 0 && p.worker("add/two") != 0 })
	other := p.worker("add/one")
	if answered := p.killUnderLoad(func() int { return p.worker("add/two") }); answered == 0 || p.worker("add/one") != other {
		t.Errorf("%d queries were answered; the worker of the other variant was %d, and is %d", answered, other, p.worker("add/one"))
	}
}

// killUnderLoad kills a worker again and again while clients add, and returns how many of
// their queries were answered, which all of them must be.
func (p *process) killUnderLoad(worker func() int) int64 {
	var over atomic.Bool
	var answered atomic.Int64
	load := make(chan struct{})
	go func() {
		defer close(load)
		crowd(6, func(_ int, random *rand.Rand) {
			for !over.Load() {
				q := sum(random, 1)
				if err := checkSum(q, p.infer("add", q)); err != nil {
					p.t.Error(err)
					return
				}
				answered.Add(1)
			}
		})
	}()
	var killed []int
	next := func() (pid int) {
		p.eventually("the next worker", func() bool {
			pid = worker()
			return pid != 0 && !slices.Contains(killed, pid)
		})
		return pid
	}
	for range max(fewer(10), 4) {
		pid := next()
		killed = append(killed, pid)
		if err := sendSignal(pid, syscall.SIGKILL); err != nil {
			p.t.Error(err)
		}
	}
	next()
	over.Store(true)
	<-load
	return answered.Load()
}

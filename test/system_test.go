package test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A worker that crashes takes nothing from its neighbour. The query that it ran
// alone may be why, and is not run again; the next one finds another worker.
func TestSystemWorkerCrashes(t *testing.T) {
	t.Parallel()
	p := serve(t, config{
		worker: restarts, tables: "[profile]\non_start = false\n", // or a measurement may be seen to run
		services: []service{tinyAdd, slowService(t, "target = \"80s\"")},
	})
	p.crashes = true
	signals := []syscall.Signal{syscall.SIGKILL, syscall.SIGSEGV, syscall.SIGABRT}
	for i, s := range signals {
		t.Run(s.String(), func(t *testing.T) {
			pid := p.awaitWorker("slow")
			running := p.runs("slow", one(float64(i)))
			if err := sendSignal(pid, s); err != nil {
				t.Fatal(err)
			}
			q := sum(rand.New(rand.NewPCG(1, uint64(i))), 1)
			if err := checkSum(q, p.infer("add", q)); err != nil {
				t.Errorf("the neighbour: %v", err)
			}
			// It may have died before the query was sent to it.
			if a := <-running; !isRefusal(a, 500, "worker_lost") && (a.Status != 200 || a.Outputs[0].Data[0] != float64(i)) {
				t.Errorf("the query whose worker crashed: %v", a)
			}
			p.eventually("the next worker", func() bool { w := p.worker("slow"); return w != 0 && w != pid })
			if a := p.infer("slow", one(float64(i)+0.5)); a.Status != 200 || a.Outputs[0].Data[0] != float64(i)+0.5 {
				t.Errorf("the query after it: %v", a)
			}
		})
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" && e.Service == "slow" }); n != len(signals) {
		t.Errorf("%d workers were lost", n)
	}
}

// runs asks a service, again if the query has ended before it was seen to run,
// and returns where the answer will be.
func (p *process) runs(service string, q query) <-chan answer {
	p.t.Helper()
	for begin := time.Now(); time.Since(begin) < patience; {
		answers, seen := make(chan answer, 1), false
		go func() { answers <- p.infer(service, q) }()
		p.eventually("the query to run", func() bool {
			seen = p.metrics()[`overlapd_input_bytes{service="`+service+`"}`] > 0
			return seen || len(answers) > 0
		})
		if seen {
			return answers
		}
	}
	p.t.Fatalf("%s is never seen to run", service)
	return nil
}

// What is asked for above what can be done is refused, with a reason, and
// what is answered is right.
func TestSystemOverload(t *testing.T) {
	p := serve(t, config{services: []service{{"slow", write(t, "slow.onnx", slow(16)), "target = \"300ms\"\nqueue_limit = 16"}}})
	begin := time.Now()
	if a := p.infer("slow", one(1)); a.Status != 200 {
		t.Fatalf("got %v", a)
	}
	mean := time.Since(begin) / 10
	random := rand.New(rand.NewPCG(7, 13))
	next := bursts(random)
	var all sync.WaitGroup
	var got tally
	room := make(chan struct{}, burstClients)
	for range fewer(2000) {
		time.Sleep(min(time.Duration(next()*float64(mean)), 100*time.Millisecond))
		room <- struct{}{}
		x := random.Float64()
		all.Go(func() {
			defer func() { <-room }()
			a := p.inferBinary("slow", one(x))
			got.add(a)
			if _, err := judge(one(x), a, checkOne, refusals); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if got.ok.Load() == 0 || got.refused.Load() == 0 {
		t.Errorf("%d were answered and %d refused; both should happen", got.ok.Load(), got.refused.Load())
	}
	m := p.metrics()
	t.Logf("%d answered, %d refused; of those that ran to their end %v of %v were late", got.ok.Load(), got.refused.Load(),
		m[`overlapd_queries_late_total{service="slow"}`], m[`overlapd_queries_finished_total{service="slow"}`])
}

// A step of the clock changes no deadline, no measured time and no
// watchdog.
func TestSystemClockSteps(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{{"add", "zoo:tiny_add", `target = "50s"`}, slowService(t, "target = \"80s\"")}})
	clock, err := takeClock(p.cmd.Process.Pid)
	if err != nil {
		t.Skip(err)
	}
	defer clock.close()
	random := rand.New(rand.NewPCG(1, 1))
	for _, by := range []time.Duration{time.Hour, -time.Hour, 10 * 365 * 24 * time.Hour, -30 * 365 * 24 * time.Hour, 0} {
		running := p.runs("slow", one(1))
		if err := clock.step(by); err != nil {
			t.Fatal(err)
		}
		for range 20 {
			q := sum(random, 1)
			if err := checkSum(q, p.infer("add", q)); err != nil {
				t.Errorf("stepped by %v: %v", by, err)
			}
		}
		if a := <-running; a.Status != 200 {
			t.Errorf("running while the clock was stepped by %v: %v", by, a)
		}
		// The date in answers is renewed once a second.
		p.eventually(fmt.Sprintf("answers that are dated %v off", by), func() bool {
			response, err := client.Get(p.url("/v2/health/live"))
			if err != nil {
				return false
			}
			response.Body.Close()
			date, err := time.Parse(time.RFC1123, response.Header.Get("Date"))
			const blur = time.Minute
			return err == nil && (time.Until(date)-by).Abs() < blur
		})
	}
	for _, s := range []string{"add", "slow"} {
		for what, took := range p.stats(s).Times {
			if took.NS < 0 || time.Duration(took.NS) > time.Duration(max(took.Count, 1))*patience {
				t.Errorf("%s: %s took %v together", s, what, time.Duration(took.NS))
			}
		}
	}
	if n := p.count(func(e event) bool { return e.Message == "worker exited" }); n != 0 {
		t.Errorf("%d workers were lost", n)
	}
}

// A disk that takes no more costs the decision log what was decided
// meanwhile, and the daemon nothing.
func TestSystemDiskFull(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{tinyAdd}, tables: "[decisions]\nlog = true\nfile_bytes = \"64KiB\"\nfiles = 2"})
	pid := p.cmd.Process.Pid
	var was unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, nil, &was); err != nil {
		t.Skip(err)
	}
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 0, Max: was.Max}, nil); err != nil {
		t.Skip(err)
	}
	random := rand.New(rand.NewPCG(1, 1))
	ask := func() {
		q := sum(random, 1)
		if err := checkSum(q, p.infer("add", q)); err != nil {
			t.Error(err)
		}
	}
	p.eventually("the log to say so", func() bool {
		ask()
		return strings.Contains(p.logged(), "writing the decision log failed")
	})
	if err := unix.Prlimit(pid, unix.RLIMIT_FSIZE, &was, nil); err != nil {
		t.Fatal(err)
	}
	p.eventually("the log to be written again", func() bool {
		ask()
		return strings.Contains(p.logged(), "writing the decision log resumed")
	})
	p.stop()
	out, log, code := run(t, "replay", filepath.Join(p.config.dir, "decisions.log"))
	if code != 0 {
		t.Errorf("what was written cannot be replayed: %d\n%s%s", code, out, log)
	}
}

// A daemon whose log nobody takes serves on.
func TestSystemLogThatNobodyTakes(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(t *testing.T) (log *os.File, begun func()){
		"the reader ends": func(t *testing.T) (*os.File, func()) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			return w, func() { r.Close() }
		},
		"the disk is full": func(t *testing.T) (*os.File, func()) {
			full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
			if err != nil {
				t.Skip(err)
			}
			return full, func() {}
		},
	} {
		t.Run(name, func(t *testing.T) {
			log, begun := open(t)
			p := startOnSocket(t, log)
			log.Close()
			begun()
			p.serves(t)
			for _, pid := range p.processes() { // which the log would tell of
				if pid != p.cmd.Process.Pid {
					sendSignal(pid, syscall.SIGKILL)
				}
			}
			p.serves(t)
			if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Error(err)
			}
			if err := p.cmd.Wait(); err != nil {
				t.Errorf("it ended with %v", err)
			}
		})
	}
}

// A command whose output nobody takes says so, and ends.
func TestSystemOutputThatNobodyTakes(t *testing.T) {
	t.Parallel()
	p := serve(t, config{services: []service{tinyAdd}})
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip(err)
	}
	defer full.Close()
	for _, args := range [][]string{{"status", "--url", p.url("")}, {"models", "list"}, {"trace", "--url", p.url(""), "--seconds", "1"}} {
		var stderr bytes.Buffer
		cmd := command(args...)
		cmd.Stdout, cmd.Stderr = full, &stderr
		err := cmd.Run()
		if err == nil || !strings.Contains(stderr.String(), "no space left on device") {
			t.Errorf("%v: %v, %q", args, err, &stderr)
		}
		says(t, stderr.String())
	}
	p.alive()
}

// startOnSocket starts a daemon that listens on a socket in the file system, since
// nobody reads in its log where it listens.
func startOnSocket(t *testing.T, log *os.File) *process {
	t.Helper()
	dir, err := os.MkdirTemp("", "overlapd-socket-") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return launchSocket(t, filepath.Join(dir, "s"), log)
}

func launchSocket(t *testing.T, socket string, log *os.File) *process {
	t.Helper()
	c := config{dir: t.TempDir(), top: `listen = "unix:` + socket + `"`, worker: restarts, services: []service{tinyAdd}}
	path := write(t, "overlapd.toml", []byte(c.text()))
	p := &process{t: t, config: c, address: socket, run: newRun()}
	p.cmd = command("serve", "--config", path)
	p.cmd.Env = append(p.cmd.Env, marker+"="+p.run)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	})
	return p
}

// serves waits until a daemon on a socket answers a query.
func (p *process) serves(t *testing.T) {
	t.Helper()
	q := sum(rand.New(rand.NewPCG(1, 1)), 1)
	var last error
	for begin := time.Now(); time.Since(begin) < patience; time.Sleep(glance) {
		c := httpCaller{network: "unix", address: p.address}
		last = checkSum(q, c.ask("add", q))
		c.close()
		if last == nil {
			return
		}
		if err := p.cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Fatalf("the daemon ended: %v", err)
		}
		if state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid)); err == nil && strings.Contains(string(state), ") Z ") {
			t.Fatalf("the daemon ended: %v", p.cmd.Wait())
		}
	}
	t.Fatalf("it does not answer: %v", last)
}

package test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds every wait: only a daemon that hangs gets there, on
	// whatever machine and under the race detector.
	patience = 90 * time.Second

	// glance is how often something is looked at that is waited for.
	glance = 10 * time.Millisecond

	// marker names a test's processes: workers inherit it.
	marker = "OVERLAPD_TEST_RUN"
)

// config is the part of a configuration that tests choose.
type config struct {
	dir      string // state_dir, "" for a new one
	grpc     string // grpc_listen, "" for none
	top      string // lines before the first table
	worker   string // lines of [worker]
	tables   string // further tables
	services []service
	sockets  []socket // that it inherits
}

type service struct {
	name, model string
	lines       string // more of its table
}

// text returns the file. Deadlines are far away unless a test sets them:
// the machine may be slow.
func (c *config) text() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	if !strings.Contains(c.top, "listen") {
		line(`listen = "127.0.0.1:0"`)
	}
	line("grpc_listen = %q", c.grpc)
	if !strings.Contains(c.top, "log_level") {
		line(`log_level = "debug"`)
	}
	line("state_dir = %q\nlog_format = \"json\"\n%s", c.dir, c.top)
	line("[worker]")
	for _, key := range []string{"threads = 1", `input_bytes = "8MiB"`, `output_bytes = "8MiB"`} {
		if name, _, _ := strings.Cut(key, " "); !strings.Contains(c.worker, name) {
			line("%s", key)
		}
	}
	line("%s\n%s", c.worker, c.tables)
	for _, s := range c.services {
		line("[[service]]\nname = %q", s.name)
		if s.model != "" { // else there are variants
			line("model = %q", s.model)
		}
		line("%s", s.lines)
		if !strings.Contains(s.lines, "target") {
			line(`target = "60s"`)
		}
	}
	return b.String()
}

// process is a running daemon.
type process struct {
	t       testing.TB
	config  config
	cmd     *exec.Cmd
	run     string // value of marker
	path    string // of the configuration
	crashes bool   // its workers do, and print their stacks
	address string
	exited  chan struct{} // closed when it is reaped and its log complete

	mu struct {
		sync.Mutex
		log   []event
		raw   bytes.Buffer
		grown chan struct{} // closed and renewed with each line
	}
}

// event is one line of the log.
type event struct {
	Level, Message, Service, Device, Address, Error, Line string
	Predictor                                             string // phase
	PID                                                   int
	Cached                                                bool
}

var runs struct {
	sync.Mutex
	n int
}

// newRun returns a value of marker.
func newRun() string {
	runs.Lock()
	defer runs.Unlock()
	runs.n++
	return fmt.Sprintf("%d-%d", os.Getpid(), runs.n)
}

// command returns a command of overlapd.
func command(args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "OVERLAPD_ORT="+library)
	return cmd
}

// launch starts a daemon, which may refuse to.
func launch(t testing.TB, c config) *process {
	t.Helper()
	return launchBy(t, c, nil)
}

// launchBy starts a daemon by flags, or else by a configuration.
func launchBy(t testing.TB, c config, flags []string) *process {
	t.Helper()
	if c.dir == "" {
		c.dir = t.TempDir()
	}
	path := filepath.Join(t.TempDir(), "overlapd.toml")
	if err := os.WriteFile(path, []byte(c.text()), 0o600); err != nil {
		t.Fatal(err)
	}
	run := newRun()
	p := &process{t: t, config: c, run: run, path: path, exited: make(chan struct{})}
	p.mu.grown = make(chan struct{})
	if flags == nil {
		p.cmd = command("serve", "--config", path)
	} else {
		p.cmd = command(append([]string{"serve"}, flags...)...)
		p.cmd.Env = append(p.cmd.Env, "STATE_DIRECTORY="+c.dir)
	}
	if len(c.sockets) > 0 {
		p.cmd = passing(c.sockets, p.cmd)
	}
	p.cmd.Env = append(p.cmd.Env, marker+"="+run)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.cmd.Stderr = w
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	w.Close()
	go p.listen(r)
	t.Cleanup(p.finish)
	return p
}

// start starts a daemon and waits until it listens.
func start(t testing.TB, c config) *process {
	t.Helper()
	p := launch(t, c)
	p.address = p.await("that it listens", func(e event) bool { return e.Message == "listening" }).Address
	return p
}

// serve starts a daemon and waits until it is ready.
func serve(t testing.TB, c config) *process {
	t.Helper()
	p := start(t, c)
	p.eventually("readiness", func() bool { return p.health("/v2/health/ready") == 200 })
	return p
}

// listen reads the log until the daemon and all of its workers have closed it.
func (p *process) listen(r *os.File) {
	defer close(p.exited)
	defer r.Close()
	lines := bufio.NewReader(r)
	for {
		text, err := lines.ReadString('\n')
		p.add(text)
		if err != nil {
			break
		}
	}
	p.cmd.Wait()
}

func (p *process) add(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.raw.WriteString(text)
	var e event
	if json.Unmarshal([]byte(text), &e) != nil {
		e = event{Line: text}
	}
	p.mu.log = append(p.mu.log, e)
	close(p.mu.grown)
	p.mu.grown = make(chan struct{})
}

// logged returns what is in the log by now.
func (p *process) logged() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.raw.String()
}

// await waits for a line of the log.
func (p *process) await(what string, is func(event) bool) event {
	p.t.Helper()
	limit := time.After(patience)
	for seen := 0; ; {
		p.mu.Lock()
		log, grown := p.mu.log[seen:], p.mu.grown
		p.mu.Unlock()
		for _, e := range log {
			if is(e) {
				return e
			}
		}
		seen += len(log)
		select {
		case <-grown:
		case <-p.exited:
			p.mu.Lock()
			more := len(p.mu.log) > seen
			p.mu.Unlock()
			if !more {
				p.t.Fatalf("the daemon ended before its log said %s", what)
			}
		case <-limit:
			p.t.Fatalf("the log does not say %s", what)
		}
	}
}

// count returns how many lines of the log there are of a kind.
func (p *process) count(is func(event) bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.mu.log {
		if is(e) {
			n++
		}
	}
	return n
}

// eventually waits for something to hold.
func (p *process) eventually(what string, holds func() bool) {
	p.t.Helper()
	for begin := time.Now(); !holds(); time.Sleep(glance) {
		if time.Since(begin) > patience {
			p.t.Fatalf("waited in vain for %s", what)
		}
		select {
		case <-p.exited:
			p.t.Fatalf("the daemon ended, waiting for %s", what)
		default:
		}
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// exit waits for the daemon to end and returns its exit status.
func (p *process) exit() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.cmd.Process.Signal(syscall.SIGQUIT) // for the stacks of its goroutines
		time.Sleep(time.Second)
		p.cmd.Process.Kill()
		p.t.Fatal("the daemon does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the daemon as a service manager does.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		p.t.Errorf("exit status %d", code)
	}
}

// finish runs after each test: the daemon ends well, nothing is left of it,
// and its log holds no sign of a defect.
func (p *process) finish() {
	select {
	case <-p.exited:
	default:
		p.stop()
	}
	for begin := time.Now(); len(p.processes()) > 0; time.Sleep(glance) {
		if time.Since(begin) > patience {
			p.t.Errorf("processes %v are left", p.processes())
			for _, pid := range p.processes() {
				sendSignal(pid, syscall.SIGKILL)
			}
			break
		}
	}
	log := p.logged()
	for _, sign := range []string{"DATA RACE", "panic:", "fatal error:", "goroutine ", "was not given back", "giving back the memory", "finishing a round failed", "sending a round"} {
		if strings.Contains(log, sign) && !(p.crashes && sign == "goroutine ") {
			p.t.Errorf("the log holds %q", sign)
		}
	}
	if p.t.Failed() {
		const most = 40 << 10
		if len(log) > most {
			log = log[:most/2] + "\n…\n" + log[len(log)-most/2:]
		}
		p.t.Logf("configuration:\n%s\nlog:\n%s", p.config.text(), log)
	}
}

// processes returns the daemon and its workers, as far as they live.
func (p *process) processes() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		env, err := os.ReadFile(dir + "/environ")
		if err == nil && bytes.Contains(env, []byte(marker+"="+p.run+"\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(dir))
			pids = append(pids, pid)
		}
	}
	return pids
}

// worker returns the process of the worker of a service that was ready last of
// those that are there, 0 if there is none. While a service is replaced there
// may be two, and the old one may be ready after the new one: it answers what it
// has accepted, and then stops.
func (p *process) worker(service string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := []int{0}
	for _, e := range p.mu.log {
		switch {
		case e.Service != service:
		case e.Message == "worker ready":
			ready = append(ready, e.PID)
		case e.Message == "worker exited", e.Message == "worker stopped":
			ready = slices.DeleteFunc(ready, func(pid int) bool { return pid == e.PID && pid != 0 })
		}
	}
	return ready[len(ready)-1]
}

// awaitWorker is worker for whoever sends it signals: it waits until there is one. The
// daemon is ready when another service is, and a signal to process 0 goes to the group of
// this process: a stop freezes the tests and whoever runs them, and nobody says a word.
func (p *process) awaitWorker(service string) (pid int) {
	p.t.Helper()
	p.eventually("the worker of "+service, func() bool { pid = p.worker(service); return pid != 0 })
	return pid
}

// measured is measure of a process that is there.
func (p *process) measured(pid int) usage {
	p.t.Helper()
	u, err := measure(pid)
	if err != nil {
		p.t.Fatal(err)
	}
	return u
}

// refused starts a daemon that must not come up, and returns what it says.
func refused(t *testing.T, c config) string { return refusedWithCode(t, c, 1) }

// faulty is how a daemon ends whose configuration is wrong, which systemd tells
// from other reasons.
const faulty = 78

func refusedWithCode(t *testing.T, c config, want int) string {
	t.Helper()
	p := launch(t, c)
	if code := p.exit(); code != want {
		t.Errorf("exit status %d", code)
	}
	return p.logged()
}

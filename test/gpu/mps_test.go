package gpu

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda"
	"github.com/overlapd/overlapd/cuda/mps"
	"github.com/overlapd/overlapd/daemon/config"
	"github.com/overlapd/overlapd/internal/fakes/fakegpu"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

const (
	// pipeVariable is where CUDA looks for the pipes of MPS.
	pipeVariable = "CUDA_MPS_PIPE_DIRECTORY"

	// limitBytes is what a client with a limit may allocate, and tooMuch what it
	// may not.
	limitBytes = 1 << 30
	tooMuch    = 3 << 29

	// looksPoll is how often the control daemon is asked: often, since it is killed.
	looksPoll = 200 * time.Millisecond
)

// variable returns a variable of an environment.
func variable(env []string, name string) string {
	for _, line := range slices.Backward(env) {
		if value, ok := strings.CutPrefix(line, name+"="); ok {
			return value
		}
	}
	return ""
}

// mpsLooks looks at what MPS prints and does, with a control daemon of its own.
type mpsLooks struct {
	*check
	program string
	pipe    string
	control *mps.Control
	env     []string // of a client
	server  int
	a, b    *clientProcess
}

// mpsPart is one thing that is looked at.
type mpsPart = func(context.Context) error

// lookAtMPS compares MPS with what package mps takes for granted of it. The clients
// are processes that hardly use the GPU.
func (c *check) lookAtMPS(ctx context.Context) error {
	return c.withMPS(ctx, func(l *mpsLooks) []mpsPart { return []mpsPart{l.idle, l.twoClients, l.beside, l.limited} })
}

// lookAtKills looks at what is left when processes of MPS are ended by force.
func (c *check) lookAtKills(ctx context.Context) error {
	return c.withMPS(ctx, func(l *mpsLooks) []mpsPart {
		return []mpsPart{l.twoClients, l.terminated, l.killed, l.serverKilled, l.daemonKilled}
	})
}

// withMPS looks at things with a control daemon of their own.
func (c *check) withMPS(ctx context.Context, parts func(*mpsLooks) []mpsPart) (err error) {
	if c.rehearsal() {
		return fmt.Errorf("%w: MPS needs a GPU; TestMPSOfFake rehearses this step", errNotMeasured)
	}
	c.stopMPS() // its server would share the GPU with that of this step
	dir := cmp.Or(c.mpsDir, c.top.TempDir())
	l := &mpsLooks{check: c, pipe: filepath.Join(dir, "mps", "pipe")}
	if l.program, err = exec.LookPath(cmp.Or(c.mpsProgram, "nvidia-cuda-mps-control")); err != nil {
		return fmt.Errorf("MPS: %w", err)
	}
	saw := l.say(ctx, filepath.Join(dir, "nobody"), "get_server_list")
	l.is("P3", strings.Contains(saw, "Cannot find MPS control daemon process"), "%s", saw)
	l.control, err = mps.Start(ctx, mps.Options{Program: c.mpsProgram, Device: c.gpu, Directory: filepath.Join(dir, "mps"), Poll: looksPoll})
	l.is("P1", err == nil, "started as user %d: %v", os.Geteuid(), err)
	if err != nil {
		return err
	}
	defer func() {
		began := time.Now()
		serr := l.control.Stop()
		l.is("P15", serr == nil, "it ended after %v: %v", time.Since(began).Round(time.Millisecond), serr)
		err = errors.Join(err, serr)
	}()
	l.env = l.control.ClientEnv(mps.Limits{})
	for _, part := range parts(l) {
		err = errors.Join(err, part(ctx))
	}
	for _, p := range []*clientProcess{l.a, l.b} {
		if p != nil {
			p.stop()
		}
	}
	return err
}

// is records whether one assumption holds.
func (l *mpsLooks) is(id string, holds bool, format string, args ...any) {
	l.expect([]string{id}, holds, format, args...)
}

// say sends a command as package mps does, and returns all that was printed, with how
// the program ended.
func (l *mpsLooks) say(ctx context.Context, pipe, command string) string {
	cmd := exec.CommandContext(ctx, l.program)
	cmd.WaitDelay = processGrace
	cmd.Env = append(os.Environ(), pipeVariable+"="+pipe)
	cmd.Stdin = strings.NewReader(command + "\n")
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	err := cmd.Run()
	return fmt.Sprintf("%s printed %.300q, on standard error %.300q, ended with %v", command, out.String(), failure.String(), err)
}

// idle looks at a daemon that has no server yet.
func (l *mpsLooks) idle(ctx context.Context) error {
	console := l.control.Console()
	saw := l.say(ctx, l.pipe, "get_server_list")
	servers, err := console.Servers(ctx)
	l.expect([]string{"P2", "P4", "P10"}, err == nil && len(servers) == 0, "%s: read as %v, %v", saw, servers, err)
	_, err = console.Status(ctx, 1)
	l.is("P3", errors.Is(err, mps.ErrNoServer), "%s: read as %v", l.say(ctx, l.pipe, "get_server_status 1"), err)
	l.process(l.control.State().PID)
	return nil
}

// process looks at what package mps knows a daemon or server by.
func (l *mpsLooks) process(pid int) {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	environ, eerr := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	has := bytes.Contains(environ, []byte(pipeVariable+"="+l.pipe))
	l.is("P11", strings.TrimSpace(string(comm)) == "nvidia-cuda-mps" && has,
		"process %d is called %q, its environment has the directory: %t; %v", pid, strings.TrimSpace(string(comm)), has, errors.Join(err, eerr))
}

// twoClients looks at a server with two clients.
func (l *mpsLooks) twoClients(ctx context.Context) (err error) {
	if l.a, err = l.startClient(ctx, l.env); err != nil {
		l.a = nil
		l.is("P16", false, "%v", err)
		return err
	}
	if l.b, err = l.startClient(ctx, l.env); err != nil {
		l.b = nil
		return err
	}
	console := l.control.Console()
	servers, err := console.Servers(ctx)
	l.is("P4", err == nil && len(servers) == 1, "with two clients: %s", l.say(ctx, l.pipe, "get_server_list"))
	if err != nil || len(servers) != 1 {
		return err
	}
	l.server = servers[0]
	status, err := console.Status(ctx, l.server)
	l.is("P5", err == nil && status == mps.StatusActive, "%s", l.say(ctx, l.pipe, fmt.Sprintf("get_server_status %d", l.server)))
	pids, err := console.ClientPIDs(ctx, l.server)
	l.is("P4", err == nil && slices.Contains(pids, l.a.PID) && slices.Contains(pids, l.b.PID),
		"clients %d and %d: %s", l.a.PID, l.b.PID, l.say(ctx, l.pipe, fmt.Sprintf("get_client_list %d", l.server)))
	l.process(l.server)
	has, err := l.hasClient(ctx, l.a.PID)
	l.is("P16", err == nil && has && l.a.Ordinal == 0, "client %d of device %d is one: %t, %v", l.a.PID, l.a.Ordinal, has, err)
	l.is("E12", l.a.Pinned == "done", "pinning sealed memory: %s", l.a.Pinned)
	pids, err = l.listed()
	l.is("F4", err == nil && slices.Contains(pids, l.a.PID) && slices.Contains(pids, l.b.PID),
		"NVML lists %v, clients are %d and %d, the server is %d; %v", pids, l.a.PID, l.b.PID, l.server, err)
	return nil
}

// hasClient reports whether a server lists a process as its client.
func (l *mpsLooks) hasClient(ctx context.Context, pid int) (bool, error) {
	servers, err := l.control.Console().Servers(ctx)
	for _, server := range servers {
		clients, cerr := l.control.Console().ClientPIDs(ctx, server)
		if err = errors.Join(err, cerr); slices.Contains(clients, pid) {
			return true, err
		}
	}
	return false, err
}

// beside runs a process without MPS while the daemon is there.
func (l *mpsLooks) beside(ctx context.Context) error {
	p, err := l.startClient(ctx, mps.OffEnv(l.gpu))
	if err != nil {
		l.is("P17", false, "%v", err)
		return err
	}
	defer p.stop()
	has, herr := l.hasClient(ctx, p.PID)
	_, err = p.ask(ctx, "copy")
	l.is("P17", err == nil && herr == nil && !has, "a process with mode off copies: %v; it is a client: %t, %v", err, has, herr)
	return nil
}

// limited runs a client with a memory limit.
func (l *mpsLooks) limited(ctx context.Context) error {
	p, err := l.startClient(ctx, l.control.ClientEnv(mps.Limits{PinnedMemoryBytes: limitBytes}))
	if err != nil {
		l.is("P18", false, "%v", err)
		return err
	}
	defer p.stop()
	_, merr := p.ask(ctx, fmt.Sprintf("alloc %d", tooMuch))
	part := p.Free / 2 // the context counts against the limit
	half, herr := p.ask(ctx, fmt.Sprintf("alloc %d", part))
	l.is("P18", merr != nil && herr == nil, "limit %d MiB: allocating %d MiB: %v; %d MiB: %v", limitBytes>>20, tooMuch>>20, merr, part>>20, herr)
	l.is("E20", p.Free <= limitBytes && half.Free <= p.Free, "limit %d MiB: %d MiB free of %d at first, %d with half of that taken", limitBytes>>20, p.Free>>20, p.Total>>20, half.Free>>20)
	return nil
}

// killed kills a client beside the others.
func (l *mpsLooks) killed(ctx context.Context) error {
	if l.server == 0 {
		return nil // twoClients has said why
	}
	p, err := l.startClient(ctx, l.env)
	if err != nil {
		return err
	}
	err = p.cmd.Process.Kill()
	p.stop()
	_, berr := l.b.ask(ctx, "copy")
	status, serr := l.control.Console().Status(ctx, l.server)
	l.is("S2", berr == nil && status == mps.StatusActive, "a client was killed (%v); another one's next copy: %v, the server is %s, %v", err, berr, status, serr)
	return nil
}

// terminated has the server end a client.
func (l *mpsLooks) terminated(ctx context.Context) error {
	if l.server == 0 {
		return nil
	}
	err := l.control.Console().TerminateClient(ctx, l.server, l.a.PID)
	l.is("P7", err == nil, "terminating a client: %v", err)
	a, aerr := l.a.ask(ctx, "copy")
	l.is("P7", aerr != nil, "its next copy: %v (result %d)", aerr, a.Result)
	_, berr := l.b.ask(ctx, "copy")
	l.is("P7", berr == nil, "the other client's next copy: %v", berr)
	return nil
}

// serverKilled kills the server under a client.
func (l *mpsLooks) serverKilled(ctx context.Context) error {
	if l.server == 0 {
		return nil
	}
	// Who kills a server before it was met is not told of its end.
	if err := l.until(ctx, func(e mps.Event) bool { return e.Kind == mps.ServerActive && e.PID == l.server }); err != nil {
		l.is("P13", false, "the server was never called active: %v", err)
		return err
	}
	if err := unix.Kill(l.server, unix.SIGKILL); err != nil {
		return err
	}
	if err := l.until(ctx, func(e mps.Event) bool { return e.Kind == mps.ServerDied }); err != nil {
		l.is("P13", false, "the server was killed and nobody told: %v", err)
		return err
	}
	b, berr := l.b.ask(ctx, "copy")
	l.expect([]string{"P13", "S1"}, berr != nil, "a client of a killed server copies: %v (result %d)", berr, b.Result)
	again, aerr := l.b.ask(ctx, "copy")
	l.is("E15", aerr != nil, "and once more: %v (result %d)", aerr, again.Result)
	l.a.stop()
	l.b.stop()
	l.a, l.b = nil, nil
	next, err := l.startClient(ctx, l.env)
	if err != nil {
		l.is("P13", false, "the next client: %v", err)
		return err
	}
	defer next.stop()
	servers, err := l.control.Console().Servers(ctx)
	l.is("P13", err == nil && len(servers) == 1 && servers[0] != l.server, "the next client's server is %v, that before was %d; %v", servers, l.server, err)
	return nil
}

// daemonKilled kills the control daemon and waits for the next one.
func (l *mpsLooks) daemonKilled(ctx context.Context) error {
	if err := unix.Kill(l.control.State().PID, unix.SIGKILL); err != nil {
		return err
	}
	err := l.until(ctx, func(e mps.Event) bool { return e.Kind == mps.Restarted })
	if err != nil {
		l.is("P12", false, "the control daemon was killed and did not come back: %v", err)
		return err
	}
	p, err := l.startClient(ctx, l.env)
	if err == nil {
		_, err = p.ask(ctx, "copy")
		p.stop()
	}
	l.is("P12", err == nil, "after the control daemon was killed with its server, a client copies: %v", err)
	return nil
}

// until waits for an event.
func (l *mpsLooks) until(ctx context.Context, is func(mps.Event) bool) error {
	late := time.After(l.patience)
	for {
		select {
		case e, ok := <-l.control.Events():
			if !ok {
				return errors.New("there are no events any more")
			}
			if is(e) {
				return nil
			}
		case <-late:
			return fmt.Errorf("not within %v", l.patience)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// withFakes returns a check of a GPU whose NVML, MPS and clients are fakes.
func withFakes(t *testing.T) (*check, *fakegpu.Server) {
	t.Helper()
	gpus := fakegpu.New(fakegpu.A100, fakegpu.H100)
	gpus.SetMIG(1, true)
	program, err := fakemps.Install(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c := newCheck(t, onGPU)
	c.nvml = func() (*cuda.Host, error) { return cuda.Open(gpus) }
	c.gpu, c.mpsProgram, c.clientRole = "1", program, "fake"
	return c, gpus
}

// answers returns the worst answer of each look.
func (c *check) answers() map[string]string {
	by := map[string]string{}
	for _, l := range c.mu.Looks {
		if by[l.ID] != "misses" {
			by[l.ID] = l.Answer
		}
	}
	return by
}

// TestMPSOfFake: the fake is as MPS is taken to be, but for terminated clients, which
// it lets go on; and no NVML lists its clients.
func TestMPSOfFake(t *testing.T) {
	t.Parallel()
	for _, behaviour := range []struct{ line, misses string }{
		{"", ""}, {"garbage get_server_status", "P5"}, {"garbage get_client_list", "P4"},
		{"exit no such device", "P1"}, {"orphan", ""},
	} {
		t.Run(behaviour.line, func(t *testing.T) {
			t.Parallel()
			dir, err := os.MkdirTemp("", "gpu") // a socket's path must be short
			if err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(dir)
			c, gpus := withFakes(t)
			c.gpu = gpus.Devices[0].UUID
			c.mpsDir, c.patience = dir, 5*time.Second
			if behaviour.line != "" {
				if err := fakemps.Behave(filepath.Join(dir, "mps", "pipe"), behaviour.line); err != nil {
					t.Fatal(err)
				}
			}
			err = c.lookAtMPS(t.Context())
			if behaviour.line == "" {
				for _, id := range []string{"P7", "P12", "P13", "S1", "S2"} {
					if answer, seen := c.answers()[id]; seen {
						t.Errorf("%s, which kills, is %s before it was asked for", id, answer)
					}
				}
				err = errors.Join(err, c.lookAtKills(t.Context()))
			}
			if behaviour.misses == "" && err != nil {
				t.Error(err)
			}
			got := c.answers()
			if behaviour.misses != "" && got[behaviour.misses] != "misses" {
				t.Errorf("%s does not miss: %v", behaviour.misses, got)
			}
			if behaviour.line != "" {
				return
			}
			for _, id := range strings.Fields("P1 P2 P3 P4 P5 P7 P10 P11 P12 P13 P15 P16 P17 P18 S1 S2 E12 E15 E20 F4") {
				want := "holds"
				if id == "P7" || id == "F4" {
					want = "misses"
				}
				if got[id] != want {
					t.Errorf("%s: %q, want %q: %+v", id, got[id], want, c.mu.Looks)
				}
			}
		})
	}
}

// TestKillsOfWorkers: a worker under MPS is taken off the GPU before it is killed; one
// without MPS is not asked for.
func TestKillsOfWorkers(t *testing.T) {
	c, gpus := withFakes(t)
	c.gpu = gpus.Devices[0].UUID
	env := c.workerEnv(t.Context())
	if c.noMPS != nil {
		t.Fatal(c.noMPS)
	}
	if c.beforeKill(nil) != nil || c.beforeKill(mps.OffEnv(c.gpu)) != nil {
		t.Error("a worker without MPS is to be terminated as its client")
	}
	p, err := c.startClient(t.Context(), env)
	if err != nil {
		t.Fatal(err)
	}
	defer p.stop()
	terminate := c.beforeKill(env)
	if terminate == nil {
		t.Fatal("a worker under MPS is not terminated before it is killed")
	}
	terminate(0, p.PID)
	log, err := os.ReadFile(filepath.Join(filepath.Dir(variable(env, pipeVariable)), "log", "control.log"))
	if err != nil || !strings.Contains(string(log), fmt.Sprintf("Terminating client %d", p.PID)) {
		t.Errorf("client %d was not terminated: %v\n%s", p.PID, err, log)
	}
}

// TestConfigOfDaemons: a daemon takes the configuration that is written for it, with
// MPS and without.
func TestConfigOfDaemons(t *testing.T) {
	c, gpus := withFakes(t)
	c.gpu = gpus.Devices[0].UUID
	c.mu.Pairs = []pairRow{{A: "tiny_cnn", B: "tiny_bert", Batch: 1, AloneAMS: 1, AloneBMS: 2}, {A: "tiny_bert", B: "tiny_mlp", Batch: 1, AloneAMS: 2, AloneBMS: 3}}
	c.services = []string{"tiny_cnn", "tiny_bert", "tiny_mlp"}
	c.base = t.TempDir()
	for mode, cut := range map[string]int{"off": 1, "existing": 7} {
		c.mu.Choices = []choice{{Model: "tiny_bert", Segments: 7}}
		path, err := c.writeConfig(t.Context(), t.TempDir(), served{services: c.services, noMPS: mode == "off", whole: mode == "off"})
		if err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(path)
		if err != nil || got.GPU != c.gpu || got.MPS.Mode != mode || len(got.Services) != 3 || got.Services[1].Cut != cut || got.CUDA.TF32 != c.tf32() {
			t.Fatalf("MPS %s: %+v, %v", mode, got, err)
		}
		// All of them one after another take 6 ms, and four times the last one alone 12 ms.
		if first, last := got.Services[0].Target, got.Services[2].Target; first != 6*time.Millisecond || last != 12*time.Millisecond {
			t.Errorf("targets are %v and %v", first, last)
		}
	}
	path, err := c.writeConfig(t.Context(), t.TempDir(), served{services: c.services, shares: []int{20, 30, 50}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.Policy = staticSplit; got.Validate() != nil || got.Services[1].MPS.Percentage != 30 {
		t.Errorf("a static split: %v, %+v", got.Validate(), got.Services[1].MPS)
	}
}

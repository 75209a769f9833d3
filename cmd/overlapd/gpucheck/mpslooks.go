package gpucheck

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
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/cuda/mps"
)

// limitBytes is what a client with a limit may allocate, and tooMuch what it may
// not.
const (
	limitBytes = 1 << 30
	tooMuch    = 3 << 29
)

// looksPoll is how often the daemon is asked: often, since it is killed.
const looksPoll = 200 * time.Millisecond

// mpsLooks looks at what MPS prints and does, with a control daemon of its own.
type mpsLooks struct {
	*check
	program string
	dir     string
	control *mps.Control
	env     []string // of a client
	pipe    string
	server  int
	a, b    *running
}

// lookAtMPS compares MPS with what package mps takes for granted of it. The
// clients are processes that hardly use the GPU.
func (c *check) lookAtMPS(ctx context.Context) (err error) {
	if c.rehearsal() {
		return nil
	}
	dir, err := os.MkdirTemp("", "overlapd-gpu-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	l := &mpsLooks{check: c, dir: filepath.Join(dir, "mps")}
	if l.program, err = exec.LookPath(cmp.Or(c.MPS, "nvidia-cuda-mps-control")); err != nil {
		return fmt.Errorf("MPS: %w", err)
	}
	l.withoutDaemon(ctx, filepath.Join(dir, "nobody"))
	l.control, err = mps.Start(ctx, mps.Options{Program: c.MPS, Device: c.deviceName(), Directory: l.dir, Poll: looksPoll})
	c.expect("P1", err == nil, "started as user %d: %v", os.Geteuid(), err)
	if err != nil {
		return err
	}
	defer func() {
		began := time.Now()
		serr := l.control.Stop()
		c.expect("P15", serr == nil, "it ended after %v: %v", time.Since(began).Round(time.Millisecond), serr)
		err = errors.Join(err, serr)
	}()
	if l.env, err = l.control.ClientEnv(mps.Limits{}); err != nil {
		return err
	}
	l.pipe = filepath.Join(l.dir, "pipe")
	for _, part := range []func(context.Context) error{
		l.idle, l.twoClients, l.beside, l.limited, l.killed, l.terminated, l.serverKilled, l.daemonKilled,
	} {
		if perr := part(ctx); perr != nil {
			err = errors.Join(err, perr)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	for _, r := range []*running{l.a, l.b} {
		if r != nil {
			r.stop()
		}
	}
	return err
}

// say sends a command as package mps does, and returns all that was printed, with
// how the program ended.
func (l *mpsLooks) say(ctx context.Context, pipe, command string) string {
	cmd := exec.CommandContext(ctx, l.program)
	cmd.WaitDelay = daemonGrace
	cmd.Env = append(os.Environ(), pipeVariable+"="+pipe)
	cmd.Stdin = strings.NewReader(command + "\n")
	var out, failure bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &failure
	err := cmd.Run()
	return fmt.Sprintf("%s printed %q, on standard error %q, ended with %v", command, out.String(), failure.String(), err)
}

// withoutDaemon looks at what is printed where nobody serves.
func (l *mpsLooks) withoutDaemon(ctx context.Context, pipe string) {
	_ = os.MkdirAll(pipe, 0o700) // without it the answer is the same
	saw := l.say(ctx, pipe, "get_server_list")
	l.expect("P3", strings.Contains(saw, "Cannot find MPS control daemon process"), "%s", saw)
}

// idle looks at a daemon that has no server yet.
func (l *mpsLooks) idle(ctx context.Context) error {
	saw := l.say(ctx, l.pipe, "get_server_list")
	servers, err := l.control.Console().Servers(ctx)
	l.expect("P2", err == nil && len(servers) == 0, "%s", saw)
	l.expect("P4", err == nil && len(servers) == 0, "%s: read as %v, %v", saw, servers, err)
	l.expect("P10", err == nil, "%s", saw)
	_, err = l.control.Console().Status(ctx, 1)
	l.expect("P3", errors.Is(err, mps.ErrNoServer), "%s: read as %v", l.say(ctx, l.pipe, "get_server_status 1"), err)
	const half = 50
	err = l.control.Console().SetDefaultActiveThreadPercentage(ctx, half)
	l.expect("P8", err == nil, "after setting %d: %s, %v", half, l.say(ctx, l.pipe, "get_default_active_thread_percentage"), err)
	err = errors.Join(err, l.control.Console().SetDefaultActiveThreadPercentage(ctx, 100))
	l.process("P11", l.control.State().PID)
	l.sockets()
	return err
}

// sockets lists the pipe directory.
func (l *mpsLooks) sockets() {
	entries, err := os.ReadDir(l.pipe)
	var names []string
	longest := ""
	for _, e := range entries {
		names = append(names, e.Name())
		if e.Type()&os.ModeSocket != 0 && len(e.Name()) > len(longest) {
			longest = e.Name()
		}
	}
	l.expect("P9", slices.Contains(names, "control") && len(longest) <= len("control_privileged"),
		"%s in the pipe directory, the longest socket is %q, %v", strings.Join(names, " "), longest, err)
}

// process looks at what package mps knows a daemon or server by.
func (l *mpsLooks) process(id string, pid int) {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	environ, eerr := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	has := bytes.Contains(environ, []byte(pipeVariable+"="+l.pipe))
	l.expect(id, strings.TrimSpace(string(comm)) == "nvidia-cuda-mps" && has,
		"process %d is called %q, its environment has the directory: %t; %v", pid, strings.TrimSpace(string(comm)), has, errors.Join(err, eerr))
}

// twoClients looks at a server with two clients.
func (l *mpsLooks) twoClients(ctx context.Context) (err error) {
	if l.a, err = l.startClient(ctx, l.env); err != nil {
		l.expect("P16", false, "%v", err)
		return err
	}
	if l.b, err = l.startClient(ctx, l.env); err != nil {
		return err
	}
	console := l.control.Console()
	servers, err := console.Servers(ctx)
	l.expect("P4", err == nil && len(servers) == 1, "with two clients: %s", l.say(ctx, l.pipe, "get_server_list"))
	if err != nil || len(servers) != 1 {
		return err
	}
	l.server = servers[0]
	status, err := console.Status(ctx, l.server)
	l.expect("P5", err == nil && status == mps.StatusActive, "%s", l.say(ctx, l.pipe, fmt.Sprintf("get_server_status %d", l.server)))
	pids, err := console.ClientPIDs(ctx, l.server)
	l.expect("P4", err == nil && slices.Contains(pids, l.a.PID) && slices.Contains(pids, l.b.PID),
		"clients %d and %d: %s", l.a.PID, l.b.PID, l.say(ctx, l.pipe, fmt.Sprintf("get_client_list %d", l.server)))
	clients, err := console.Clients(ctx)
	l.expect("P6", err == nil && len(clients) == 2, "%s: read as %v", l.say(ctx, l.pipe, "ps"), clients)
	l.process("P11", l.server)
	has, err := l.control.HasClient(ctx, l.a.PID)
	l.expect("P16", err == nil && has && l.a.Ordinal == 0, "client %d of device %d (%s) is one: %t, %v", l.a.PID, l.a.Ordinal, l.a.UUID, has, err)
	l.expect("E12", l.a.Pinned == "done", "pinning sealed memory: %s", l.a.Pinned)
	l.processes()
	return nil
}

// processes compares the clients with what NVML lists.
func (l *mpsLooks) processes() {
	pids, err := l.listed()
	l.expect("F4", err == nil && slices.Contains(pids, l.a.PID) && slices.Contains(pids, l.b.PID),
		"NVML lists %v, clients are %d and %d, the server is %d; %v", pids, l.a.PID, l.b.PID, l.server, err)
}

// beside runs a process without MPS while the daemon is there.
func (l *mpsLooks) beside(ctx context.Context) error {
	r, err := l.startClient(ctx, l.offEnv())
	if err != nil {
		l.expect("P17", false, "%v", err)
		return err
	}
	defer r.stop()
	has, herr := l.control.HasClient(ctx, r.PID)
	_, err = r.ask(ctx, "copy")
	l.expect("P17", err == nil && herr == nil && !has, "a process with mode off copies: %v; it is a client: %t, %v", err, has, herr)
	return nil
}

// limited runs a client with a memory limit.
func (l *mpsLooks) limited(ctx context.Context) error {
	env, err := l.control.ClientEnv(mps.Limits{PinnedMemoryBytes: limitBytes})
	if err != nil {
		return err
	}
	r, err := l.startClient(ctx, env)
	if err != nil {
		l.expect("P18", false, "%v", err)
		return err
	}
	defer r.stop()
	_, merr := r.ask(ctx, fmt.Sprintf("alloc %d", tooMuch))
	half, herr := r.ask(ctx, fmt.Sprintf("alloc %d", limitBytes/2))
	l.expect("P18", merr != nil && herr == nil, "limit %d MiB: allocating %d MiB: %v; half of it: %v", limitBytes>>20, tooMuch>>20, merr, herr)
	l.expect("E20", r.Free <= limitBytes && half.Free <= r.Free, "limit %d MiB: %d MiB free of %d at first, %d with half of it taken", limitBytes>>20, r.Free>>20, r.Total>>20, half.Free>>20)
	return nil
}

// killed kills a client beside the others.
func (l *mpsLooks) killed(ctx context.Context) error {
	if l.server == 0 {
		return nil // twoClients has told why
	}
	r, err := l.startClient(ctx, l.env)
	if err != nil {
		return err
	}
	err = r.cmd.Process.Kill()
	r.stop()
	_, berr := l.b.ask(ctx, "copy")
	status, serr := l.control.Console().Status(ctx, l.server)
	l.expect("S2", berr == nil && status == mps.StatusActive, "a client was killed (%v); another one's next copy: %v, the server is %s, %v", err, berr, status, serr)
	return nil
}

// terminated has the server end a client.
func (l *mpsLooks) terminated(ctx context.Context) error {
	if l.server == 0 {
		return nil // twoClients has told why
	}
	err := l.control.Console().TerminateClient(ctx, l.server, l.a.PID)
	l.expect("P7", err == nil, "terminating a client: %v", err)
	a, aerr := l.a.ask(ctx, "copy")
	l.expect("P7", aerr != nil, "its next copy: %v (result %d)", aerr, a.Result)
	_, berr := l.b.ask(ctx, "copy")
	l.expect("P7", berr == nil, "the other client's next copy: %v", berr)
	return nil
}

// serverKilled kills the server under a client.
func (l *mpsLooks) serverKilled(ctx context.Context) error {
	if l.server == 0 {
		return nil
	}
	// Who kills a server before it was met is not told of its end.
	if err := l.until(ctx, func(e mps.Event) bool { a, ok := e.(mps.ServerActive); return ok && a.PID == l.server }); err != nil {
		l.expect("P13", false, "the server was never called active: %v", err)
		return err
	}
	if err := unix.Kill(l.server, unix.SIGKILL); err != nil {
		return err
	}
	if err := l.until(ctx, func(e mps.Event) bool { _, ok := e.(mps.ServerDied); return ok }); err != nil {
		l.expect("P13", false, "the server was killed and nobody told: %v", err)
		return err
	}
	b, berr := l.b.ask(ctx, "copy")
	for _, id := range []string{"P13", "S1"} {
		l.expect(id, berr != nil, "a client of a killed server copies: %v (result %d)", berr, b.Result)
	}
	again, aerr := l.b.ask(ctx, "copy")
	l.expect("E15", aerr != nil, "and once more: %v (result %d)", aerr, again.Result)
	l.a.stop()
	l.b.stop()
	l.a, l.b = nil, nil
	next, err := l.startClient(ctx, l.env)
	if err != nil {
		l.expect("P13", false, "the next client: %v", err)
		return err
	}
	defer next.stop()
	servers, err := l.control.Console().Servers(ctx)
	l.expect("P13", err == nil && len(servers) == 1 && servers[0] != l.server, "the next client's server is %v, that before was %d; %v", servers, l.server, err)
	return nil
}

// daemonKilled kills the control daemon and waits for the next one.
func (l *mpsLooks) daemonKilled(ctx context.Context) error {
	if err := unix.Kill(l.control.State().PID, unix.SIGKILL); err != nil {
		return err
	}
	err := l.until(ctx, func(e mps.Event) bool { _, ok := e.(mps.Restarted); return ok })
	if err != nil {
		l.expect("P12", false, "the control daemon was killed and did not come back: %v", err)
		return err
	}
	r, err := l.startClient(ctx, l.env)
	if err == nil {
		_, err = r.ask(ctx, "copy")
		r.stop()
	}
	l.expect("P12", err == nil, "after the control daemon was killed with its server, a client copies: %v", err)
	return nil
}

// until waits for an event.
func (l *mpsLooks) until(ctx context.Context, is func(mps.Event) bool) error {
	late := time.NewTimer(l.patient())
	defer late.Stop()
	for {
		select {
		case e, ok := <-l.control.Events():
			if !ok {
				return mps.ErrStopped
			}
			if is(e) {
				return nil
			}
		case <-late.C:
			return fmt.Errorf("not within %v", l.patient())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

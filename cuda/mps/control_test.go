package mps

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

func TestStartAndStop(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if s := c.State(); s.Phase != PhaseRunning || !alive(s.PID) || s.Starts != 1 || s.Err != nil {
		t.Errorf("state %+v", s)
	}
	if err := healthy(t.Context(), c); err != nil {
		t.Error(err)
	}
	server := serverOf(t, c)
	status, err := c.Console().Status(t.Context(), server)
	if s := c.State(); !slices.Equal(s.Servers, []int{server}) || status != StatusActive || err != nil || userOf(server) != os.Getuid() {
		t.Errorf("servers %v, status %q, %v", s.Servers, status, err)
	}
	for _, path := range []string{o.Directory, o.pipe(), filepath.Join(o.Directory, logName)} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	pid := c.State().PID
	for range 2 { // the second call finds it stopped
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	}
	if alive(pid) || alive(server) {
		t.Error("processes are left")
	}
	if s := c.State(); s.Phase != PhaseStopped || s.PID != 0 || len(s.Servers) > 0 {
		t.Errorf("state %+v", s)
	}
	for range c.Events() { // it is closed
	}
	for _, name := range []string{pipeName, lockName} {
		if _, err := os.Lstat(filepath.Join(o.Directory, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left: %v", name, err)
		}
	}
}

func TestStartFails(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		behaviour string
		change    func(*Options)
		want      error
		text      string
	}{
		"never ready": {"never", func(o *Options) { o.ReadyTimeout = 300 * time.Millisecond }, ErrNotReady, "did not answer within 300ms"},
		"exits":       {"exit MPS is not supported on this GPU", nil, ErrNotReady, "exit status 1); it printed: MPS is not supported on this GPU"},
		"garbage":     {"garbage get_server_list", nil, ErrOutput, `\xffgarbage`},
		"hangs": {"hang get_server_list", func(o *Options) {
			o.CommandTimeout, o.ReadyTimeout = 200*time.Millisecond, 4*time.Second
		}, ErrNoAnswer, "stop the workers"},
		"no program": {"", func(o *Options) { o.Program = "/nonexistent/mps" }, ErrNoProgram, "nvidia-compute-utils"},
		"long path":  {"", func(o *Options) { o.Directory += strings.Repeat("d", socketLimit) }, ErrDirectory, "bytes shorter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOptions(t)
			behave(t, o, test.behaviour)
			if test.change != nil {
				test.change(&o)
			}
			c, err := Start(t.Context(), o)
			if c != nil || !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, %v", c, err)
			}
		})
	}
}

func TestStartIsCancelled(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	behave(t, o, "never")
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := Start(ctx, o)
		failed <- err
	}()
	eventually(t, "the daemon runs", func() bool { return len(leftovers(&directory{path: o.Directory})) > 0 })
	cancel()
	if err := <-failed; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A daemon and a server of an earlier overlapd still live.
func TestLeftoversAreEnded(t *testing.T) {
	t.Parallel()
	for name, behaviour := range map[string][]string{
		"obeys": {"orphan"}, "stays": {"orphan", "stay"}, "hangs": {"orphan", "hang quit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := newOptions(t)
			o.CommandTimeout = 3 * time.Second
			behave(t, o, behaviour...)
			pid := alien(t, o)
			console := newConsole(o.Program, o.pipe(), patience)
			if err := startServer(t.Context(), console); err != nil {
				t.Fatal(err)
			}
			servers, err := console.Servers(t.Context())
			if err != nil || len(servers) != 1 {
				t.Fatal(servers, err)
			}
			behave(t, o)
			behave(t, o, behaviour[1:]...)
			c, err := Start(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			behave(t, o)
			if alive(servers[0]) || alive(pid) || c.State().PID == pid {
				t.Error("the earlier daemon is left")
			}
			if err := c.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// The sockets of a dead daemon do not hinder a new one; what is not a
// daemon's stays.
func TestStalePipe(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	folder := filepath.Join(o.pipe(), "folder")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unixpacket", filepath.Join(o.pipe(), "control"))
	if err != nil {
		t.Fatal(err)
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	listener.Close()
	if err := os.WriteFile(filepath.Join(o.pipe(), "nvidia-cuda-mps-control.pid"), []byte("1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, o)
	if _, err := os.Stat(folder); err != nil {
		t.Error(err)
	}
}

// TestRefusedCommandIsRepeated: a control daemon that is busy with another program is asked again,
// and a console gives up within its time.
func TestRefusedCommandIsRepeated(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	c := start(t, o)
	file := filepath.Join(o.Directory, "busy")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	behave(t, o, "refuse "+file)
	ctx, cancel := context.WithTimeout(t.Context(), 2*refusedDelayMin)
	defer cancel()
	if _, err := c.Console().Servers(ctx); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("a daemon that stays busy: %v", err)
	}
	asked := make(chan error, 1)
	go func() {
		_, err := c.Console().Servers(t.Context())
		asked <- err
	}()
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; err != nil {
		t.Errorf("a daemon that was busy: %v", err)
	}
}

func TestClients(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	c := start(t, o)
	ctx := t.Context()
	if err := c.TerminateClient(ctx, os.Getpid()); err != nil {
		t.Errorf("before there is a server: %v", err)
	}
	client, err := fakemps.Connect(o.pipe())
	if err != nil {
		t.Fatal(err)
	}
	server := await(t, c, ServerActive).PID
	if server != client.Server {
		t.Errorf("server %d, the client has %d", server, client.Server)
	}
	if pids, err := c.Console().ClientPIDs(ctx, server); err != nil || !slices.Equal(pids, []int{os.Getpid()}) {
		t.Errorf("%v, %v", pids, err)
	}
	if err := c.TerminateClient(ctx, os.Getpid()); err != nil {
		t.Error(err)
	}
	if err := c.TerminateClient(ctx, 1); err != nil { // no client, so nothing is asked
		t.Error(err)
	}
	if err := c.Console().TerminateClient(ctx, server, os.Getpid()); err != nil {
		t.Error(err)
	}
	if err := c.Console().TerminateClient(ctx, server, 1); !errors.Is(err, ErrOutput) {
		t.Error(err)
	}
	if _, err := c.Console().send(ctx, fmt.Sprintf("shutdown_server %d -f", server)); err != nil {
		t.Error(err)
	}
	<-client.Lost()
	if dead := await(t, c, ServerDied); dead.PID != server {
		t.Errorf("%+v", dead)
	}
	client.Close()
	for name, err := range map[string]error{
		"status": second(c.Console().Status(ctx, server)), "clients": second(c.Console().ClientPIDs(ctx, server)),
		"terminate": c.Console().TerminateClient(ctx, server, 1),
	} {
		if !errors.Is(err, ErrNoServer) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestConsoleErrors(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	alien(t, o) // which nobody else asks
	console := newConsole(o.Program, o.pipe(), patience)
	for _, test := range []struct {
		behaviour string
		want      error
		text      string
	}{
		{"garbage get_server_list", ErrOutput, `\xffgarbage`},
		{"huge get_server_list", ErrOutput, "more than 65536 bytes"},
	} {
		behave(t, o, test.behaviour)
		if _, err := console.Servers(t.Context()); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
			t.Error(test.behaviour, err)
		}
	}
	behave(t, o, "hang get_server_list")
	short := newConsole(o.Program, o.pipe(), 100*time.Millisecond)
	if _, err := short.Servers(t.Context()); !errors.Is(err, ErrNoAnswer) {
		t.Error(err)
	}
	behave(t, o)
	if _, err := console.Servers(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := newConsole(o.Program, o.Directory, patience).Servers(t.Context()); !errors.Is(err, ErrNoDaemon) {
		t.Error(err)
	}
	if _, err := newConsole("/bin/false", o.pipe(), patience).Servers(t.Context()); !errors.Is(err, ErrCommand) {
		t.Error(err)
	}
}

// A daemon that ignores quit is killed, with its server.
func TestStopKills(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	o.StopTimeout = time.Second
	behave(t, o, "stay", "orphan")
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	server, pid := serverOf(t, c), c.State().PID
	if err := c.Stop(); !errors.Is(err, ErrKilled) {
		t.Error(err)
	}
	if alive(server) || alive(pid) {
		t.Error("processes are left")
	}
}

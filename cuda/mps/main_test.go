package mps

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/internal/fakes/fakemps"
)

// parentVariable makes this binary a process that starts a control daemon in
// the directory it names and waits to be killed.
const parentVariable = "OVERLAPD_TEST_PARENT"

// patience is how long a test waits for what must happen.
const patience = 20 * time.Second

const testDevice = "GPU-4e0b6c2a-8d1f-4b7a-9c3e-0123456789ab"

func TestMain(m *testing.M) {
	fakemps.Take()
	if directory := os.Getenv(parentVariable); directory != "" {
		parent(directory)
	}
	// Else each process that the race detector watches takes a second to end.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	code := m.Run()
	if err := goleak.Find(); code == 0 && err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func parent(directory string) {
	program := filepath.Join(directory, fakemps.Program)
	c, err := Start(context.Background(), Options{Program: program, Device: testDevice, Directory: directory})
	if err != nil {
		panic(err)
	}
	fmt.Println(c.State().PID)
	select {}
}

// newOptions returns options for the fake, in a directory with a short path.
func newOptions(t testing.TB) Options {
	t.Helper()
	path, err := os.MkdirTemp("", "mps")
	if err != nil {
		t.Fatal(err)
	}
	program, err := fakemps.Install(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if left := leftovers(&directory{path: path}); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
			for _, pid := range left {
				unix.Kill(pid, unix.SIGKILL)
			}
		}
		os.RemoveAll(path)
	})
	return Options{
		Program: program, Device: testDevice, Directory: path,
		Poll: 20 * time.Millisecond, Policy: child.Policy{BackoffMin: time.Millisecond, BackoffMax: 10 * time.Millisecond},
		ReadyTimeout: patience, CommandTimeout: patience, StopTimeout: patience,
	}
}

func (o Options) pipe() string { return filepath.Join(o.Directory, pipeName) }

func behave(t testing.TB, o Options, lines ...string) {
	t.Helper()
	if err := fakemps.Behave(o.pipe(), lines...); err != nil {
		t.Fatal(err)
	}
}

// start returns a control that the test's end stops.
func start(t testing.TB, o Options) *Control {
	t.Helper()
	c, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// await returns the next event of a kind, and forgets those before.
func await(t testing.TB, c *Control, kind eventKind) Event {
	t.Helper()
	timeout := time.After(patience)
	var before []Event
	for {
		select {
		case e, ok := <-c.Events():
			if ok && e.Kind == kind {
				return e
			}
			if before = append(before, e); !ok {
				t.Fatalf("events ended without %q; there were %+v", kind, before)
			}
		case <-timeout:
			t.Fatalf("no %q; there were %+v", kind, before)
		}
	}
}

// eventually waits until something holds.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not in time: ", what)
		}
	}
}

func startServer(ctx context.Context, c *console) error {
	_, err := c.send(ctx, "start_server -uid "+strconv.Itoa(os.Getuid()))
	return err
}

// healthy asks a daemon that runs and its servers now.
func healthy(ctx context.Context, c *Control) error {
	if s := c.State(); s.Phase != PhaseRunning {
		return s.Err
	}
	found := c.look(ctx)
	return errors.Join(found.err, checkServers(found.servers, os.Geteuid()))
}

// serverOf starts a server and returns its PID once it is known.
func serverOf(t testing.TB, c *Control) int {
	t.Helper()
	if err := startServer(t.Context(), c.Console()); err != nil {
		t.Fatal(err)
	}
	return await(t, c, ServerActive).PID
}

// alien runs a control daemon that no control knows, and returns its PID.
func alien(t testing.TB, o Options) int {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(o.Directory, logName), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(o.Program, "-f")
	cmd.Env = environment((&directory{path: o.Directory}).variables()...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	reaped := make(chan struct{})
	go func() { defer close(reaped); cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill(); <-reaped })
	console := newConsole(o.Program, o.pipe(), patience)
	eventually(t, "the other daemon answers", func() bool {
		_, err := console.Servers(t.Context())
		return err == nil
	})
	return cmd.Process.Pid
}

func kill(t testing.TB, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// alive reports whether a process runs; a zombie does not.
func alive(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(text), ") ")
	return err == nil && rest != "" && rest[0] != 'Z' && rest[0] != 'X'
}

// Whatever kills overlapd, its control daemon dies too.
func TestControlDiesWithItsParent(t *testing.T) {
	t.Parallel()
	o := newOptions(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentVariable+"="+o.Directory)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || !alive(pid) {
		t.Errorf("control daemon %q, %v", line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	eventually(t, "the control daemon dies", func() bool { return !alive(pid) })
}

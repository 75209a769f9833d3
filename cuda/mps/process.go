package mps

import (
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	tailMax    = 8 << 10 // bytes kept of what the daemon prints
	errorLines = 6       // lines of it that an error holds
)

// process is the control daemon's process.
type process struct {
	cmd    *exec.Cmd
	began  time.Time
	tail   tail
	exited chan struct{} // closed when it has been reaped

	mu struct {
		sync.Mutex
		reaped bool
	}
}

// startProcess starts the daemon in the foreground. spawn starts a
// goroutine that whoever stops the control waits for.
func startProcess(spawn func(func()), program string, env []string) (*process, error) {
	p := &process{began: time.Now(), exited: make(chan struct{})}
	p.cmd = exec.Command(program, "-f")
	p.cmd.Env = env
	p.cmd.Stdout, p.cmd.Stderr = &p.tail, &p.tail
	p.cmd.WaitDelay = pipeGrace // a server may hold the pipe
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	spawn(func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		started <- err
		if err == nil {
			p.reap()
		}
	})
	if err := <-started; err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotReady, err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// reap waits for the end and kills what is left of the group, which is safe to
// name until the process is reaped.
func (p *process) reap() {
	defer close(p.exited)
	for unix.Waitid(unix.P_PID, p.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	p.mu.reaped = true
	_ = unix.Kill(-p.pid(), unix.SIGKILL)
	p.mu.Unlock()
	_ = p.cmd.Wait() // its state says how it ended
}

// signal sends a signal to the group, if the process has not ended yet.
func (p *process) signal(s unix.Signal) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.reaped {
		_ = unix.Kill(-p.pid(), s)
	}
}

// awaitExit reports whether the process ended within d.
func (p *process) awaitExit(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-p.exited:
		return true
	case <-timer.C:
		return false
	}
}

// tail keeps the last that a process printed.
type tail struct {
	mu struct {
		sync.Mutex
		data []byte
	}
}

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.data = append(t.mu.data, text...)
	if excess := len(t.mu.data) - tailMax; excess > 0 {
		t.mu.data = append(t.mu.data[:0], t.mu.data[excess:]...)
	}
	return len(text), nil
}

func (t *tail) text() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.mu.data), "?")
}

// lastLines returns the last lines of a text on one line.
func lastLines(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-errorLines):], " | ")
}

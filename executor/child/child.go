// Package child runs programs as child processes that never outlive this process
// and leave no processes of their own behind.
//
// A [Process] is in a process group of its own: ^C on a terminal reaches only this
// process, and anything that the child started dies with it. The kernel kills the
// child when this process ends for any reason. Its output is passed on line by
// line at a limited rate, and the end of it is kept for the error that reports the
// child's exit. [Restarts] decides when a child that ended is restarted, by the
// rules in [Policy].
//
// Package executor runs workers with it, cuda/mps runs the MPS control daemon, and
// the commands run a process that fits a predictor. It suits processes that run as
// long as their caller has work. Use os/exec for a command whose output is the
// result.
package child

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outputGrace is how long the output pipe of a process may stay open after the
// process ended. A descendant that left the process group may still hold the pipe.
const outputGrace = 100 * time.Millisecond

// Process is a child process. Its zero value is a process that has ended.
type Process struct {
	// Began is when the process was started.
	Began time.Time

	cmd  *exec.Cmd
	pid  int
	tail tail
	done chan struct{}

	mu struct {
		sync.Mutex

		// alive is set until the process is reaped. Only until then do its PID and
		// process group ID certainly belong to it, so that they can be signaled.
		alive bool
	}
}

// Start starts cmd. Each line of its standard error is passed to line, and each
// line of its standard output too unless cmd redirects that. line may be nil, is
// called by one goroutine, and must return soon. All output has been read when Done
// is closed. If cores are given, the process and its descendants run only on those.
func Start(cmd *exec.Cmd, line func(string), cores ...int) (*Process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if cmd.Stdout == nil {
		cmd.Stdout = w
	}
	cmd.Stderr = w
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	p := &Process{Began: time.Now(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go p.run(r, line, cores, started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return p, nil
}

// run starts the process and waits for its end, both on one locked thread. The
// kernel delivers Pdeathsig when the thread that started the process ends, not when
// the parent process does, so that thread must live as long as the child.
func (p *Process) run(output *os.File, line func(string), cores []int, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := onCores(cores, p.cmd.Start); err != nil {
		started <- err
		return
	}
	p.pid = p.cmd.Process.Pid
	p.mu.alive = true
	started <- nil
	defer close(p.done)
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.tail.listen(output, line)
	}()
	p.reap()
	_ = output.SetReadDeadline(time.Now().Add(outputGrace))
	<-read
	output.Close()
}

// onCores calls start while the current thread, which must be locked, is bound to
// the given cores. A process that start creates inherits the binding before it has
// threads of its own.
func onCores(cores []int, start func() error) error {
	if len(cores) == 0 {
		return start()
	}
	var before, during unix.CPUSet
	for _, c := range cores {
		during.Set(c)
	}
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	if err := unix.SchedSetaffinity(0, &during); err != nil {
		return fmt.Errorf("running on the cores %v: %w", cores, os.NewSyscallError("sched_setaffinity", err))
	}
	defer func() { _ = unix.SchedSetaffinity(0, &before) }() // cannot fail: it is the thread's former set
	return start()
}

// reap waits for the process and kills what is left of its group. WNOWAIT leaves
// the process unreaped until then, so that its group ID cannot be reused.
func (p *Process) reap() {
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	p.mu.alive = false
	_ = unix.Kill(-p.pid, unix.SIGKILL)
	p.mu.Unlock()
	_ = p.cmd.Wait() // Status reads how it ended from ProcessState
}

// PID returns the process ID.
func (p *Process) PID() int { return p.pid }

// Done returns a channel that is closed when the process has ended and was reaped,
// and all of its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill kills the process and its group unless it has ended. It signals the process
// separately, because the process may have left its group.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.alive {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

// Within reports whether done, such as that of a process, is closed within d.
func Within(done <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
		return true
	case <-timer.C:
		return false
	}
}

// Status describes how the process ended. It returns "" before Done is closed.
func (p *Process) Status() string {
	select {
	case <-p.done:
		return p.cmd.ProcessState.String()
	default:
		return ""
	}
}

// Succeeded reports whether the process has ended with exit status 0.
func (p *Process) Succeeded() bool {
	select {
	case <-p.done:
		return p.cmd.ProcessState.Success()
	default:
		return false
	}
}

// Tail returns the last TailBytes of the process's output, without an incomplete
// first line.
func (p *Process) Tail() string { return p.tail.text() }

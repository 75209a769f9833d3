// Package child runs programs as child processes that neither outlive this one
// nor leave anything of their own behind.
//
// A [Process] is in a process group of its own, so that ^C on a terminal reaches
// this process only, and what the child started dies with it. The kernel kills it
// when this process ends, however that comes about. What it writes is passed on
// line by line, no more than a reader can bear, and the last of it is kept for
// the error that its end produces. [Restarts] decides when one that ended is
// started again, with [Policy] as the rule.
//
// Package executor runs workers by it, cuda/mps the control daemon of MPS, and the
// commands a process that fits a predictor. It is for processes that live as long
// as their work: a command whose output is the result is better run by os/exec.
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

// outputGrace is how long the pipe of a process's output may stay open after its
// end: something that it started and that left its group may hold it.
const outputGrace = 100 * time.Millisecond

// Process is a child process. The zero value is one that has ended.
type Process struct {
	Began time.Time // when it was started

	cmd  *exec.Cmd
	pid  int
	tail tail
	done chan struct{}

	mu struct {
		sync.Mutex
		alive bool // not reaped yet, so that its number and its group's mean nobody else
	}
}

// Start starts cmd. Its standard error goes to line, and so does its standard
// output unless cmd says where to; line may be nil, is called by one goroutine,
// and must return soon. All of it has been read when Done is closed. The process and
// what it starts run on these cores only, or if there are none on those of this one.
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

// run starts the process and waits for its end on one thread, which it keeps:
// the kernel takes the end of the thread that started a process for the end of
// its parent.
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

// onCores calls start on a thread that is locked and runs on these cores meanwhile, which
// a process that it starts inherits before it has threads of its own.
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
	defer func() { _ = unix.SchedSetaffinity(0, &before) }() // which it had
	return start()
}

// reap waits for the process, and kills what is left of its group while the
// number of the group cannot have come to mean another.
func (p *Process) reap() {
	for unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	p.mu.alive = false
	_ = unix.Kill(-p.pid, unix.SIGKILL)
	p.mu.Unlock()
	_ = p.cmd.Wait() // its state says how it ended
}

// PID returns the number of the process.
func (p *Process) PID() int { return p.pid }

// Done returns a channel that is closed when the process has ended, is reaped,
// and all of its output was read.
func (p *Process) Done() <-chan struct{} { return p.done }

// Kill ends the process and its group, if it has not ended yet. The process may
// have left the group, so it is named as well.
func (p *Process) Kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.alive {
		_ = unix.Kill(-p.pid, unix.SIGKILL)
		_ = unix.Kill(p.pid, unix.SIGKILL)
	}
}

// Within reports whether done, as that of a process, was closed within d.
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

// Status describes how the process ended, "" before it is done.
func (p *Process) Status() string {
	select {
	case <-p.done:
		return p.cmd.ProcessState.String()
	default:
		return ""
	}
}

// Succeeded reports whether the process is done and exited with status 0.
func (p *Process) Succeeded() bool {
	select {
	case <-p.done:
		return p.cmd.ProcessState.Success()
	default:
		return false
	}
}

// Tail returns the last TailBytes of what the process wrote, without a line whose
// beginning is missing.
func (p *Process) Tail() string { return p.tail.text() }

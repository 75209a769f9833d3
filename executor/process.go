package executor

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// stderrGrace is how long the pipe of standard error may stay open after the
// process has ended: something it started may hold it.
const stderrGrace = 100 * time.Millisecond

// spawner starts processes from one thread, which lives as long as the
// spawner: a worker gets SIGKILL when the thread that started it ends.
type spawner struct {
	requests chan spawnRequest
	ended    chan struct{}
}

type spawnRequest struct {
	cmd  *exec.Cmd
	done chan error
}

func startSpawner() *spawner {
	s := &spawner{requests: make(chan spawnRequest), ended: make(chan struct{})}
	go s.run()
	return s
}

func (s *spawner) run() {
	defer close(s.ended)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for r := range s.requests {
		r.done <- r.cmd.Start()
	}
}

func (s *spawner) start(cmd *exec.Cmd) error {
	r := spawnRequest{cmd, make(chan error, 1)}
	s.requests <- r
	return <-r.done
}

func (s *spawner) stop() {
	close(s.requests)
	<-s.ended
}

// process is a worker's process.
type process struct {
	cmd    *exec.Cmd
	stderr *os.File // our end of the pipe
	tail   tail
	exited chan struct{} // closed when it has been reaped
	heard  chan struct{} // closed when all of its standard error was read

	mu struct {
		sync.Mutex
		reaped bool
	}
}

// startProcess starts argv with files as its descriptors 3 and up.
func startProcess(s *spawner, argv, env []string, files ...*os.File) (*process, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer w.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdout, cmd.Stderr = w, w
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.start(cmd); err != nil {
		r.Close()
		return nil, err
	}
	offer(cmd.Process.Pid)
	return &process{cmd: cmd, stderr: r, exited: make(chan struct{}), heard: make(chan struct{})}, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// listen reads standard error until all who have it are gone.
func (p *process) listen(line func(string)) {
	defer close(p.heard)
	defer p.stderr.Close()
	p.tail.listen(p.stderr, line)
}

// wait reaps the process when it ends, and kills what is left of its group.
// The group is safe to name until the process is reaped.
func (p *process) wait() {
	defer close(p.exited)
	for unix.Waitid(unix.P_PID, p.pid(), nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	p.mu.Lock()
	p.mu.reaped = true
	_ = unix.Kill(-p.pid(), unix.SIGKILL)
	p.mu.Unlock()
	_ = p.cmd.Wait() // its state says how it ended
	_ = p.stderr.SetReadDeadline(time.Now().Add(stderrGrace))
}

// kill ends the process and its group, if it has not ended yet. The process may
// have left the group, so it is named as well.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mu.reaped {
		_ = unix.Kill(-p.pid(), unix.SIGKILL)
		_ = unix.Kill(p.pid(), unix.SIGKILL)
	}
}

// await waits until the process is reaped and all of its standard error read,
// but no longer than grace.
func (p *process) await(grace time.Duration) {
	timer := time.NewTimer(grace)
	defer timer.Stop()
	for _, done := range []chan struct{}{p.exited, p.heard} {
		select {
		case <-done:
		case <-timer.C:
			return
		}
	}
}

// stuckAfter is after how long it is told that a worker does not end.
const stuckAfter = 10 * time.Second

// awaitEnd waits until the process, which was killed, is reaped and all of its
// standard error read. If that takes long it tells so, and waits on: nothing else
// ends such a process, and while it is there it holds what it has of a device.
func (p *process) awaitEnd(after time.Duration, tell func(string)) {
	timer := time.NewTimer(after)
	defer timer.Stop()
	select {
	case <-p.exited:
	case <-timer.C:
		tell(fmt.Sprintf("(process %d was killed and has not ended after %v: the kernel holds it, most likely in a driver; "+
			"see /proc/%d/stack and dmesg; its service starts no other before it is gone)", p.pid(), after, p.pid()))
		<-p.exited
	}
	<-p.heard
}

// status says how the process ended, or "" if it was not reaped yet.
func (p *process) status() string {
	select {
	case <-p.exited:
		return p.cmd.ProcessState.String()
	default:
		return ""
	}
}

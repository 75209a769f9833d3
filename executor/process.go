package executor

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/executor/child"
	"github.com/overlapd/overlapd/models"
	serve "github.com/overlapd/overlapd/segments/worker"
)

// process is where a worker runs: in a child process, or inside this one.
type process interface {
	// PID returns 0 for a worker inside this process.
	PID() int
	Kill()

	// Done is closed when nothing is left of the worker.
	Done() <-chan struct{}

	// Status says how the worker ended, "" before Done is closed.
	Status() string

	// Tail returns the end of the worker's output.
	Tail() string
}

// Inside runs workers in this process in place of a command. An emulated device
// implements it, because it must know more about rounds than a worker receives.
// All methods except Serve are called with locks of the executor held, and must
// return immediately.
type Inside interface {
	// Serve runs the worker of a service. It returns when the daemon shuts down its
	// end of the socket, when the worker receives Quit, or soon after ctx ends.
	Serve(ctx context.Context, id models.ServiceID, files serve.Files) error

	// Sent is called with the spans of a round that run together, after they were
	// sent to their workers. Calls are in the order of the rounds.
	Sent(spans []models.Span)

	// Runs reports whether a span that was sent still has to run or is running, by
	// the device's clock. The host may not have noticed its end yet.
	Runs(span models.Span) bool

	// Stopped is called after a span was asked to stop at its next operator
	// boundary. The span may have ended already.
	Stopped(span models.Span)
}

// insider is a worker inside this process.
type insider struct {
	kill context.CancelFunc
	done chan struct{}

	// err is what Serve returned. It may be read once done is closed.
	err error
}

// startInside starts the worker of a service on a goroutine. When the worker has
// ended, it closes the worker's end of the socket.
func startInside(in Inside, id models.ServiceID, files []*os.File) *insider {
	ctx, cancel := context.WithCancel(context.Background())
	p := &insider{kill: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer files[0].Close()
		defer cancel()
		f := serve.Files{Socket: files[0], Inputs: files[1].Fd(), Outputs: files[2].Fd()}
		if len(files) > 3 {
			f.Moves = files[3].Fd()
		}
		p.err = in.Serve(ctx, id, f)
	}()
	return p
}

func (p *insider) PID() int              { return 0 }
func (p *insider) Kill()                 { p.kill() }
func (p *insider) Done() <-chan struct{} { return p.done }
func (p *insider) Tail() string          { return "" }

func (p *insider) Status() string {
	select {
	case <-p.done:
		return fmt.Sprintf("exited inside the daemon's process: %v", p.err)
	default:
		return ""
	}
}

// startChild starts a worker process on the given cores. It inherits the files as
// descriptors from 3 on. A nil env means the environment of this process.
func startChild(command, env []string, cores []int, files []*os.File, line func(string)) (*child.Process, error) {
	if env == nil {
		env = os.Environ()
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = withoutSecrets(env)
	cmd.ExtraFiles = files
	p, err := child.Start(cmd, line, cores...)
	if err != nil {
		return nil, err
	}
	offer(p.PID())
	return p, nil
}

// checkCores returns an error for a core that this process may not run on, either
// because it does not exist or because this process was not given it.
func checkCores(cores []int) error {
	var ours unix.CPUSet
	if err := unix.SchedGetaffinity(0, &ours); err != nil || len(cores) == 0 {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	for _, c := range cores {
		if ours.IsSet(c) {
			continue
		}
		var there []int
		for c := range coresKnown {
			if ours.IsSet(c) {
				there = append(there, c)
			}
		}
		return fmt.Errorf("%w: core %d for workers is not available; this process may run on %v", ErrOptions, c, there)
	}
	return nil
}

// coresKnown is the capacity of a [unix.CPUSet].
const coresKnown = 1024

// withheld lists the prefixes of environment variables that a worker does not get.
// A worker parses untrusted models. It needs neither secrets, nor paths to them,
// nor the means to act as the daemon.
var withheld = []string{
	"OTEL_EXPORTER_OTLP_", // headers with credentials, and the collector's address
	"OVERLAPD_TOKEN_FILE=",
	"CREDENTIALS_DIRECTORY=", // systemd's
	"NOTIFY_SOCKET=",
	"WATCHDOG_",
	"LISTEN_", // sockets that systemd passes
}

// withoutSecrets returns the environment without the withheld variables.
func withoutSecrets(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		return slices.ContainsFunc(withheld, func(begin string) bool { return strings.HasPrefix(variable, begin) })
	})
}

const (
	// oomHandicap is added to the daemon's oom_score_adj to get a worker's, in
	// thousandths of all memory. When memory runs out, the kernel should kill a
	// worker, which is replaced; without the daemon, all services would end.
	oomHandicap = 500

	// oomMost is the largest oom_score_adj that the kernel accepts.
	oomMost = 1000
)

// offer makes a process the OOM killer's choice ahead of this one. A process may
// raise the score of its own children without privileges. If that fails, as in
// some containers, the kernel chooses by its own rules.
func offer(pid int) {
	ours, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return
	}
	score, err := strconv.Atoi(string(bytes.TrimSpace(ours)))
	if err != nil {
		return
	}
	theirs := strconv.Itoa(min(score+oomHandicap, oomMost))
	_ = os.WriteFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", []byte(theirs), 0)
}

// residentBytes returns the resident set size of a process, or 0 if it is unknown.
func residentBytes(pid int) int64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return 0
	}
	var size, resident int64
	if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
		return 0
	}
	return resident * int64(os.Getpagesize())
}

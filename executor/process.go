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

// process is what a worker runs in.
type process interface {
	PID() int // 0 inside of this process
	Kill()
	Done() <-chan struct{} // closed when nothing is left of it
	Status() string        // how it ended, "" before it is done
	Tail() string          // the last that it wrote
}

// Inside runs workers in this process, in the place of a command: an emulated
// device does, which must know more of rounds than a worker is sent. Its methods
// are called with locks of the executor held, but for Serve, and return at once.
type Inside interface {
	// Serve is the worker of a service. It returns when the daemon's end of the
	// socket is shut down or the worker is told to quit, and soon after ctx has
	// ended.
	Serve(ctx context.Context, id models.ServiceID, files serve.Files) error

	// Sent is called with the spans of a round that run together, after they were
	// sent to their workers, and in the order of the rounds.
	Sent(spans []models.Span)

	// Runs reports whether a span that was sent still runs, or has to, by the device's
	// clock. The host may not have noticed that it has ended.
	Runs(span models.Span) bool

	// Stopped is called after a span was told to stop at its next operator
	// boundary. It may have ended.
	Stopped(span models.Span)
}

// insider is a worker inside of this process.
type insider struct {
	kill context.CancelFunc
	done chan struct{}
	err  error // what Serve returned, once done is closed
}

// startInside starts the worker of a service on a goroutine, and closes its end of the
// socket when it has ended.
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
		return fmt.Sprintf("ended inside of the daemon: %v", p.err)
	default:
		return ""
	}
}

// startChild starts a worker process with these files as its descriptors from 3
// on, and on these cores. An env of nil is that of this process.
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

// checkCores refuses cores that this process may not run on: they are not there, or
// were not given to it.
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
		return fmt.Errorf("%w: there is no core %d for workers, the cores that this process may run on are %v", ErrOptions, c, there)
	}
	return nil
}

// coresKnown is how many cores a [unix.CPUSet] has room for.
const coresKnown = 1024

// withheld are the variables that a worker does not get, by how their names
// begin. It parses models that others wrote, and needs neither what names or
// holds secrets nor a way to speak for the daemon.
var withheld = []string{
	"OTEL_EXPORTER_OTLP_", // headers with credentials, and the collector
	"OVERLAPD_TOKEN_FILE=",
	"CREDENTIALS_DIRECTORY=", // systemd's
	"NOTIFY_SOCKET=",
	"WATCHDOG_",
	"LISTEN_", // sockets that systemd passes
}

// withoutSecrets returns an environment without what a worker does not get.
func withoutSecrets(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(variable string) bool {
		return slices.ContainsFunc(withheld, func(begin string) bool { return strings.HasPrefix(variable, begin) })
	})
}

const (
	// oomHandicap is how much sooner than the daemon a worker is killed where
	// memory runs out, in thousandths of all memory there is. A worker that is
	// killed is replaced; with the daemon all services would end.
	oomHandicap = 500

	// oomMost is the most that the kernel takes.
	oomMost = 1000
)

// offer has the kernel kill a process before us where memory runs out. Raising
// that of one's own processes needs no right; where it cannot be, as in some
// containers, the kernel chooses as it likes.
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

// residentBytes returns the resident set of a process, or 0.
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

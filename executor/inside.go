package executor

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/models"
	serve "github.com/overlapd/overlapd/segments/worker"
)

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

	// Stopped is called after a span was told to stop at its next operator
	// boundary. It may have ended.
	Stopped(span models.Span)
}

// process is what a worker runs in.
type process interface {
	PID() int // 0 for one inside of this process
	Kill()
	Done() <-chan struct{} // closed when nothing is left of it
	Status() string        // how it ended, "" before it is done
	Tail() string          // the last that it wrote
}

// insider is a worker inside of this process.
type insider struct {
	kill context.CancelFunc
	done chan struct{}
	err  error // of Serve, once done is closed
}

// startInside starts the worker of a service on a goroutine, with descriptors of
// its own for these files.
func startInside(in Inside, id models.ServiceID, files []*os.File) (*insider, error) {
	var own [3]uintptr
	for i, f := range files {
		fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			closeAll(own[:i])
			return nil, os.NewSyscallError("fcntl", err)
		}
		own[i] = uintptr(fd)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &insider{kill: cancel, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		defer closeAll(own[:])
		defer cancel()
		p.err = in.Serve(ctx, id, serve.Files{Socket: own[0], Inputs: own[1], Outputs: own[2]})
	}()
	return p, nil
}

func closeAll(fds []uintptr) {
	for _, fd := range fds {
		_ = unix.Close(int(fd))
	}
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

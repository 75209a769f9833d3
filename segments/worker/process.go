package worker

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/segments/wire"
)

// The descriptors that a worker process inherits from the daemon. movesFD is present
// only if batches of the service move.
const (
	socketFD  = 3
	inputsFD  = 4
	outputsFD = 5
	movesFD   = 6
)

// Run turns this process into a worker: it serves the descriptors inherited from the
// daemon, and returns when the daemon ends the worker.
//
// A worker exits when the daemon asks it to, or when the daemon is gone. It ignores
// the signals with which a terminal or a service manager ends a whole process group,
// because the daemon first completes what is in flight. If the daemon dies, the kernel
// kills the worker. If the daemon died before that was arranged, the socket is already
// at its end.
func Run(load LoadFunc) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_PDEATHSIG)", err)
	}
	for fd := socketFD; fd <= outputsFD; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return fmt.Errorf("worker: a worker is started by the daemon, not by hand: descriptor %d: %w", fd, err)
		}
	}
	_, _ = unix.FcntlInt(movesFD, unix.F_SETFD, unix.FD_CLOEXEC) // the descriptor may not exist
	runtime.LockOSThread()                                       // a CUDA context is current to one thread
	defer runtime.UnlockOSThread()
	return Serve(Files{os.NewFile(socketFD, "daemon"), inputsFD, outputsFD, movesFD},
		func(spec wire.LoadSpec, memory Memory, progress ProgressFunc) (Engine, error) {
			engine, err := load(spec, memory, progress)
			if err == nil && spec.Units > 1 && spec.CUDA == nil {
				return newPaced(engine, spec.Units), nil
			}
			runtime.GOMAXPROCS(1) // only one goroutine serves, and waking other Ps would cost time for nothing
			return engine, err
		})
}

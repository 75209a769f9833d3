package worker

import (
	"fmt"
	"os"
	"os/signal"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/segments/wire"
)

// The descriptors that the daemon leaves to a worker process.
const (
	socketFD  = 3
	inputsFD  = 4
	outputsFD = 5
	movesFD   = 6 // of a service whose batches move
)

// Run makes this process a worker: it serves what the daemon left in descriptors
// 3 on and returns when the daemon is done with it.
//
// A worker leaves only when the daemon asks it to, and always when the daemon is
// gone. It ignores the signals by which a terminal or a service manager asks a
// whole group to end, since the daemon first answers what is in flight. If the
// daemon dies, the kernel kills it, and if it died before that was arranged,
// the socket is already at its end.
func Run(load LoadFunc) error {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGKILL), 0, 0, 0); err != nil {
		return os.NewSyscallError("prctl(PR_SET_PDEATHSIG)", err)
	}
	for fd := socketFD; fd <= outputsFD; fd++ {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, unix.FD_CLOEXEC); err != nil {
			return fmt.Errorf("worker: a worker is started by the daemon, never by hand: descriptor %d: %w", fd, err)
		}
	}
	_, _ = unix.FcntlInt(movesFD, unix.F_SETFD, unix.FD_CLOEXEC) // whatever it is, no child has it
	runtime.LockOSThread()                                       // a context of CUDA belongs to a thread
	defer runtime.UnlockOSThread()
	return Serve(Files{os.NewFile(socketFD, "daemon"), inputsFD, outputsFD, movesFD},
		func(spec wire.LoadSpec, memory Memory, progress ProgressFunc) (Engine, error) {
			defer runtime.GOMAXPROCS(1) // one goroutine serves; each further processor would be woken to find nothing to do
			return load(spec, memory, progress)
		})
}

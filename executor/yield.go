package executor

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// networkPause limits how long polling readers can keep the Go runtime from
// checking the network if it has a single processor. The runtime does so only when
// no goroutine is runnable, and a reader that polls always is. Otherwise it checks
// only every 10 ms, which would add that much to the latency of a query.
const networkPause = 50 * time.Microsecond

// yielding lets other goroutines run while readers poll for answers: those that
// are runnable, and those with network events pending.
type yielding struct {
	// file is an eventfd that the runtime watches.
	file *os.File

	// wait makes the runtime wait for file until pass returns true.
	wait func(pass func(fd uintptr) bool) error

	// last is when the runtime was last made to check the network, in nanoseconds
	// since begin. Winning its compare-and-swap admits one caller to wait.
	last  atomic.Int64
	begin time.Time

	// asked belongs to pass, of which one runs at a time.
	asked bool
}

func newYielding() (*yielding, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	y := &yielding{file: os.NewFile(uintptr(fd), "yield"), begin: time.Now()}
	raw, err := y.file.SyscallConn()
	if err == nil {
		y.wait = raw.Read
	}
	return y, err
}

// yield implements [wire.Socket.Yield] for a reader.
func (y *yielding) yield() {
	runtime.Gosched()
	now := int64(time.Since(y.begin))
	if last := y.last.Load(); now-last >= int64(networkPause) && y.last.CompareAndSwap(last, now) {
		_ = y.wait(y.pass) // fails only if the file is closed
	}
}

// pass makes the goroutine wait for a network event that has already happened. The
// runtime thus checks the network, and the goroutine resumes behind all others
// whose events are pending as well.
func (y *yielding) pass(fd uintptr) (over bool) {
	if y.asked {
		y.asked = false
		return true
	}
	one := [8]byte{1}
	_, err := unix.Write(int(fd), one[:])
	y.asked = err == nil
	return err != nil
}

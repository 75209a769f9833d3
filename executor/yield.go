package executor

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// networkPause is for how long at most the readers of an executor that poll keep the Go
// runtime, where it has one processor, from looking at the network. It looks only when no
// goroutine can run, and one that polls can; by itself it would do so every 10 ms.
const networkPause = 50 * time.Microsecond

// yielding lets others run while readers poll for answers: goroutines that can, and those
// for which something has arrived.
type yielding struct {
	file *os.File                               // an eventfd that the runtime watches
	wait func(pass func(fd uintptr) bool) error // has the runtime wait for file until pass is true
	last atomic.Int64                           // when the runtime was made to look, since begin

	begin time.Time
	asked bool // by pass, of which there is one at a time
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

// yield is a reader's [wire.Socket.Yield].
func (y *yielding) yield() {
	runtime.Gosched()
	now := int64(time.Since(y.begin))
	if last := y.last.Load(); now-last >= int64(networkPause) && y.last.CompareAndSwap(last, now) {
		_ = y.wait(y.pass) // an error is that of a file that is closed
	}
}

// pass makes the goroutine wait for an event of the network that is there already: it
// goes on after all others whose events are there, too.
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

package wire

import (
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// contended is how long giving up the core may take if nobody else wants it.
// When it takes longer, somebody has run, and polling would only be in the way.
const contended = 10 * time.Microsecond

// Poll reads from a socket for at most d without sleeping. It reports false if
// nothing came, if others want the core, or if there is something to say that
// a system call that waits will say as well: the end of the stream, an error.
//
// Waking a thread on another core takes long where cores sleep deeply, as those
// of virtual machines do: BenchmarkRound of package executor shows it. A span of
// a small model takes less, so both ends of a worker's socket look for the next message for a moment
// before they sleep.
func Poll(fd int, buf []byte, d time.Duration) (n int, ok bool) {
	begin := time.Now()
	for last := time.Duration(0); ; {
		n, err := look(fd, buf)
		switch {
		case err == 0 && n > 0:
			return n, true
		case err != unix.EAGAIN && err != unix.EINTR:
			return 0, false
		}
		now := time.Since(begin)
		if now >= d || now-last > contended {
			return 0, false
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // never fails
		last = now
	}
}

// look reads what is there. It is recv(2) without what makes the one of x/sys
// allocate: a source address, and a word to the Go scheduler that this may
// take long.
func look(fd int, buf []byte) (int, syscall.Errno) {
	n, _, err := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))),
		uintptr(len(buf)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), err
}

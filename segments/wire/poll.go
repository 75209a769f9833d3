package wire

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Socket is one end of a worker's connection, which is read by one goroutine. In
// a process of its own a worker has a blocking descriptor, which is read by the
// thread that runs the spans, without a detour through Go's poller; the daemon's
// end, and both ends of a worker inside of the daemon, are known to the poller.
type Socket struct {
	*os.File
	Poll  time.Duration // how long Read looks for bytes before it sleeps
	Yield func()        // lets the process do all else that there is to do before each look, nil for nothing

	fd     int
	onIdle func()
}

// NewSocket returns the socket of a file, which stays the caller's.
func NewSocket(f *os.File) (*Socket, error) {
	s := &Socket{File: f}
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { s.fd = int(fd) }) // Fd would make it block
	}
	return s, err
}

// OnIdle has Read call f whenever nothing has come for d. It holds for a blocking
// descriptor only.
func (s *Socket) OnIdle(d time.Duration, f func()) error {
	s.onIdle = f
	timeout := unix.NsecToTimeval(int64(d))
	return os.NewSyscallError("setsockopt(SO_RCVTIMEO)", unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
}

// Read implements io.Reader. A worker that dies with frames unread resets the
// connection; that too is its end.
func (s *Socket) Read(buf []byte) (int, error) {
	if s.Poll > 0 {
		if n, ok := s.poll(buf); ok {
			return n, nil
		}
	}
	n, err := s.File.Read(buf)
	for s.onIdle != nil && errors.Is(err, unix.EAGAIN) {
		s.onIdle()
		n, err = s.File.Read(buf)
	}
	if errors.Is(err, unix.ECONNRESET) {
		err = io.EOF
	}
	return n, err
}

// contended is how long giving up the core may take if nobody else wants it.
// When it takes longer, somebody has run, and polling would only be in the way.
const contended = 10 * time.Microsecond

// polled is how long this process has looked in vain, in nanoseconds.
var polled atomic.Int64

// Worked returns what this process has had of processors, without that in which it has
// looked for bytes in vain.
func Worked() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // it has no way to fail
	return time.Duration(t.Nano() - polled.Load())
}

// poll reads for at most s.Poll without sleeping. It reports false if
// nothing came, if others want the core, or if there is something to say that
// a system call that waits will say as well: the end of the stream, an error.
//
// Waking a thread on another core takes long where cores sleep deeply, as those
// of virtual machines do: BenchmarkRound of package executor shows it. A span of
// a small model takes less, so both ends of a worker's socket look for the next
// message for a moment before they sleep.
func (s *Socket) poll(buf []byte) (n int, ok bool) {
	for begin := time.Now(); ; {
		if s.Yield != nil {
			s.Yield()
		}
		looked := time.Now()
		n, err := look(s.fd, buf)
		switch {
		case err == 0 && n > 0:
			return n, true
		case err != unix.EAGAIN && err != unix.EINTR:
			return 0, false
		}
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // never fails
		now := time.Now()
		polled.Add(int64(min(now.Sub(looked), contended)))
		if now.Sub(begin) >= s.Poll || now.Sub(looked) > contended {
			return 0, false
		}
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

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

// Socket is one end of a worker's connection. One goroutine reads it.
//
// A worker process has a blocking descriptor, so that the thread that runs the spans
// reads it directly, without a detour through Go's poller. The daemon's end is
// registered with the poller, as are both ends of a worker inside the daemon.
type Socket struct {
	*os.File

	// Poll is how long Read polls for bytes before it sleeps.
	Poll time.Duration

	// Yield, if set, lets the rest of the process run before each poll.
	Yield func()

	fd     int
	onIdle func()
}

// NewSocket returns the socket of a file. The caller still owns the file.
func NewSocket(f *os.File) (*Socket, error) {
	s := &Socket{File: f}
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { s.fd = int(fd) }) // File.Fd would make the descriptor blocking
	}
	return s, err
}

// OnIdle makes Read call f whenever nothing has arrived for d. It works only for a
// blocking descriptor.
func (s *Socket) OnIdle(d time.Duration, f func()) error {
	s.onIdle = f
	timeout := unix.NsecToTimeval(int64(d))
	return os.NewSyscallError("setsockopt(SO_RCVTIMEO)", unix.SetsockoptTimeval(s.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout))
}

// Read implements io.Reader. A worker that dies with frames unread resets the
// connection; Read reports that as io.EOF too.
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

// contended is how long sched_yield may take if nobody else wants the core. If it
// takes longer, another thread has run, and polling would slow that down.
const contended = 10 * time.Microsecond

// polled is how long this process has polled in vain, in nanoseconds.
var polled atomic.Int64

// Worked returns the CPU time of this process without the time spent polling in vain.
func Worked() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t) // cannot fail for this clock
	return time.Duration(t.Nano() - polled.Load())
}

// poll reads for at most s.Poll without sleeping. It returns false if nothing
// arrived, if other threads want the core, or if a blocking read will report the end
// of the stream or an error.
//
// Waking a thread on another core is slow if cores sleep deeply, as on virtual
// machines; BenchmarkRound of package executor measures it. A span of a small model
// takes less time than that. Both ends of a worker's socket therefore poll briefly
// for the next message before they sleep.
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

// look reads the available bytes. It is recv(2) without two things in the wrapper of
// x/sys: the source address, which allocates, and the notice to Go's scheduler that
// the call may block.
func look(fd int, buf []byte) (int, syscall.Errno) {
	n, _, err := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(buf))),
		uintptr(len(buf)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), err
}

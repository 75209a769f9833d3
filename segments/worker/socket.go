package worker

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/overlapd/overlapd/segments/wire"
)

// socket is the worker's end of the connection: a blocking descriptor that is
// read by the thread that runs the spans, without a detour through the poller.
type socket struct {
	fd   int
	poll time.Duration // how long to look for a message before sleeping
}

// Read implements io.Reader.
func (s *socket) Read(buf []byte) (int, error) {
	if s.poll > 0 {
		if n, ok := wire.Poll(s.fd, buf, s.poll); ok {
			return n, nil
		}
	}
	for {
		n, err := unix.Read(s.fd, buf)
		switch {
		case err == unix.EINTR:
		case err == unix.ECONNRESET, err == nil && n == 0 && len(buf) > 0:
			return 0, io.EOF
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		default:
			return n, nil
		}
	}
}

func (s *socket) write(data []byte) error {
	for len(data) > 0 {
		n, err := unix.SendmsgN(s.fd, data, nil, nil, unix.MSG_NOSIGNAL)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return os.NewSyscallError("sendmsg", err)
		}
		data = data[n:]
	}
	return nil
}

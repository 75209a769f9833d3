package segments

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// socket is the worker's end of the connection: a blocking descriptor that is
// read by the thread that runs the spans, without a detour through the poller.
type socket int

// Read implements io.Reader.
func (s socket) Read(buf []byte) (int, error) {
	for {
		n, err := unix.Read(int(s), buf)
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

func (s socket) write(data []byte) error {
	for len(data) > 0 {
		n, err := unix.SendmsgN(int(s), data, nil, nil, unix.MSG_NOSIGNAL)
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
